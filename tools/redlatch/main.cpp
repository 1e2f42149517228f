#include "standard_error.hpp"
#include "verbs.hpp"

#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#if defined(REDLATCH_TOOL_TLS)
#include <redlatch/tls.hpp>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>

namespace tool {

redlatch::Client make_client(const Settings& settings,
                             std::shared_ptr<redlatch::Observer> observer) {
    redlatch::ClientOptions options;
    options.observer = std::move(observer);
    options.uris.assign(settings.uris.begin(), settings.uris.end());
    if (settings.longest_lease) options.longest_lease = *settings.longest_lease;
    if (settings.key_space) options.key_space = *settings.key_space;
    const auto is_tls = [](const std::string& uri) {
        return ::strncasecmp(uri.c_str(), "rediss", 6) == 0;  // as any scheme, in capitals too
    };
    if (std::ranges::any_of(settings.uris, is_tls)) {
#if defined(REDLATCH_TOOL_TLS)
        options.tls = redlatch::tls({});
#else
        throw UsageError{"this redlatch was built without OpenSSL, which rediss:// wants"};
#endif
    }
    return redlatch::Client{options};
}

void complain(const Settings& settings, const std::string& line) {
    if (!settings.quiet) write_what_is_taken("redlatch: " + line + "\n");
}

}  // namespace tool

namespace {

/// A pipe must not become one of the standard three, in a program that was started without them.
void open_standard_descriptors() {
    int fd = -1;
    do {
        fd = ::open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) ::close(fd);
}

int carry_out(const tool::Settings& settings) {
    using tool::Verb;
    switch (settings.verb) {
        case Verb::run: return tool::run(settings);
        case Verb::status: return tool::status(settings);
        case Verb::remove: return tool::take_away(settings);
        case Verb::help: std::fputs(tool::help_text(), stdout); return 0;
        case Verb::version:
            std::printf("redlatch %d.%d.%d\n", REDLATCH_VERSION_MAJOR, REDLATCH_VERSION_MINOR,
                        REDLATCH_VERSION_PATCH);
            return 0;
    }
    return 0;
}

/// Throws where what was written to standard output did not get there.
void flush_output(bool was_open) {
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && was_open) return;
    throw std::system_error{was_open ? errno : EBADF, std::system_category(),
                            "the output cannot be written"};
}

}  // namespace

int main(int argc, char** argv) {
    using tool::Failure;
    const bool has_output = ::fcntl(STDOUT_FILENO, F_GETFD) >= 0;
    open_standard_descriptors();
    tool::Settings settings;
    try {
        tool::read_command_line(argc, argv, settings);
        const int code = carry_out(settings);
        if (settings.verb != tool::Verb::run) flush_output(has_output);  // `run` writes none
        return code;
    } catch (const tool::UsageError& error) {
        tool::complain(settings, std::string{error.what()} + "; see redlatch --help");
        return settings.codes.of(Failure::usage);
    } catch (const redlatch::LockError& error) {
        tool::complain(settings, error.error().describe());
        return settings.codes.of(error.error());
    } catch (const std::exception& error) {
        tool::complain(settings, error.what());
        return settings.codes.of(Failure::internal);
    }
}
