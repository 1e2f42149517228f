#include "command_line.hpp"

#include "text.hpp"
#include "variables.hpp"

#include <getopt.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

namespace tool {

namespace {

/// Options without a short form.
enum LongOption {
    option_no_fence = 256,
    option_stoppable,
    option_json,
    option_uri_file,
    option_key_space,
    option_at_least,
    option_longest_lease,
    option_shared,
    option_exclusive,
    option_permits
};

struct VerbOptions {
    const char* short_options;
    std::vector<::option> long_options;
};

/// What `getopt_long` returns for a word that is no option, as the leading `-` asks for.
constexpr int is_name = 1;

const VerbOptions& options_of(Verb verb) {
    static const VerbOptions of_run{
        "-:w:nl:k:u:E:qv",
        {{"wait", required_argument, nullptr, 'w'},
         {"no-wait", no_argument, nullptr, 'n'},
         {"lease", required_argument, nullptr, 'l'},
         {"kill-after", required_argument, nullptr, 'k'},
         {"uri", required_argument, nullptr, 'u'},
         {"uri-file", required_argument, nullptr, option_uri_file},
         {"key-space", required_argument, nullptr, option_key_space},
         {"at-least", required_argument, nullptr, option_at_least},
         {"longest-lease", required_argument, nullptr, option_longest_lease},
         {"shared", no_argument, nullptr, option_shared},
         {"exclusive", no_argument, nullptr, option_exclusive},
         {"permits", required_argument, nullptr, option_permits},
         {"no-fence", no_argument, nullptr, option_no_fence},
         {"stoppable", no_argument, nullptr, option_stoppable},
         {"exit-code", required_argument, nullptr, 'E'},
         {"quiet", no_argument, nullptr, 'q'},
         {"verbose", no_argument, nullptr, 'v'},
         {}}};
    static const VerbOptions of_status{"-:u:E:q",
                                       {{"uri", required_argument, nullptr, 'u'},
                                        {"uri-file", required_argument, nullptr, option_uri_file},
                                        {"key-space", required_argument, nullptr, option_key_space},
                                        {"json", no_argument, nullptr, option_json},
                                        {"exit-code", required_argument, nullptr, 'E'},
                                        {"quiet", no_argument, nullptr, 'q'},
                                        {}}};
    static const VerbOptions of_break{"-:u:E:qy",
                                      {{"uri", required_argument, nullptr, 'u'},
                                       {"uri-file", required_argument, nullptr, option_uri_file},
                                       {"key-space", required_argument, nullptr, option_key_space},
                                       {"yes", no_argument, nullptr, 'y'},
                                       {"exit-code", required_argument, nullptr, 'E'},
                                       {"quiet", no_argument, nullptr, 'q'},
                                       {}}};
    if (verb == Verb::run) return of_run;
    return verb == Verb::status ? of_status : of_break;
}

/// Whether it says where servers are: no lock has such a name by intent.
bool is_uri_of_servers(std::string_view word) {
    std::string scheme{word.substr(0, word.find("://"))};
    std::ranges::transform(scheme, scheme.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return is_uri(word) && (scheme.starts_with("redis") || scheme == "unix");
}

std::chrono::milliseconds seconds(std::string_view option, const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool is_decimal = text.find_first_not_of("0123456789.eE+-") == std::string::npos;
    constexpr double most = 1e9;  // seconds
    if (!is_decimal || end == text.c_str() || *end != '\0') {
        throw UsageError{shown(text) + " is no number of seconds for " + std::string{option}};
    }
    if (!std::isfinite(value) || value < 0 || value > most) {
        throw UsageError{shown(text) + " is not between 0 and 1000000000 seconds for " +
                         std::string{option}};
    }
    return std::chrono::milliseconds{std::llround(value * 1000)};
}

std::ptrdiff_t permits_of(const std::string& text) {
    std::ptrdiff_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stopped != end || number < 1) {
        throw UsageError{shown(text) + " is no number of permits"};
    }
    return number;
}

void set_exit_code(const std::string& text, ExitCodes& codes) {
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string part = text.substr(begin, end - begin);
        const std::size_t equals = std::min(part.find('='), part.size());
        const char* const first = part.data() + std::min(equals + 1, part.size());
        const char* const last = part.data() + part.size();
        int code = -1;
        const auto [stopped, error] = std::from_chars(first, last, code);
        if (error != std::errc{} || stopped != last || !codes.set(part.substr(0, equals), code)) {
            throw UsageError{shown(part) + " is no exit code such as busy=0"};
        }
        begin = end + 1;
    }
}

std::vector<std::string> words(std::istream&& text) {
    std::vector<std::string> found;
    for (std::string word; text >> word;) found.push_back(std::move(word));
    return found;
}

void add_uris_of_file(const std::string& path, std::vector<std::string>& uris) {
    std::ifstream file{path};
    if (file) file.peek();  // a folder can be opened, and not be read
    if (!file.is_open() || file.bad()) {
        throw UsageError{"cannot read " + shown(path) +
                         " as a file of URIs: " + std::strerror(errno)};
    }
    std::vector<std::string> found;
    for (std::string line; std::getline(file, line);) {
        for (std::string& uri : words(std::istringstream{line})) {
            if (uri.starts_with('#')) break;
            found.push_back(std::move(uri));
        }
    }
    if (found.empty()) throw UsageError{"there is no URI in the file " + shown(path)};
    uris.insert(uris.end(), found.begin(), found.end());
}

/// Empty where it names none.
std::vector<std::string> uris_of_environment() {
    const char* const value = std::getenv("REDLATCH_URI");
    if (value == nullptr && std::getenv(needs_uri) != nullptr) {
        throw UsageError{
            "a command of `redlatch run` does not see its REDLATCH_URI, --uri or --uri-file: name "
            "the server with --uri or --uri-file"};
    }
    if (value == nullptr) return {};
    auto uris = words(std::istringstream{value});
    if (uris.empty()) throw UsageError{"REDLATCH_URI is empty"};
    return uris;
}

Verb verb_of(std::string_view word) {
    if (word == "run") return Verb::run;
    if (word == "status") return Verb::status;
    if (word == "break") return Verb::remove;
    if (word == "help" || word == "--help" || word == "-h") return Verb::help;
    if (word == "version" || word == "--version") return Verb::version;
    if (word.starts_with("-")) throw UsageError{"options stand behind run, status or break"};
    throw UsageError{shown(word) + " is nothing to do; there are run, status and break"};
}

/// Those that have that long option; empty where none has.
std::string verbs_with(std::string_view option) {
    constexpr std::array verbs{std::pair{Verb::run, "run"}, std::pair{Verb::status, "status"},
                               std::pair{Verb::remove, "break"}};
    std::string names;
    for (const auto& [verb, name] : verbs) {
        const bool has_it =
            std::ranges::any_of(options_of(verb).long_options, [option](const ::option& known) {
                return known.name != nullptr && option == std::string{"--"} + known.name;
            });
        if (has_it) names += (names.empty() ? "" : " and ") + std::string{name};
    }
    return names;
}

std::string as_given(const char* option, int code) {
    const std::string_view word{option};
    if (word.starts_with("--")) return std::string{word};
    return std::string{"-"} + static_cast<char>(code);
}

class Reader {
public:
    Reader(int argc, char** argv, Settings& settings)
        : argc_(argc), argv_(argv), options_(&options_of(settings.verb)), settings_(&settings) {}

    /// The options and the locks' names and, behind `--`, the command.
    void read_words() {
        ::opterr = 0;
        ::optind = 1;
        for (;;) {
            const int code = ::getopt_long(argc_, argv_, options_->short_options,
                                           options_->long_options.data(), nullptr);
            if (code == -1) break;
            take(code);
        }
        auto& rest = settings_->verb == Verb::run ? settings_->command : settings_->names;
        rest.insert(rest.end(), argv_ + ::optind, argv_ + argc_);
    }

    void check_operands() const {
        const std::vector<std::string>& names = settings_->names;
        if (names.empty()) throw UsageError{"the lock's name is missing"};
        if (std::ranges::any_of(names, is_uri_of_servers)) {
            throw UsageError{
                "a URI stands where a lock's name is expected: each one needs a --uri of its own"};
        }
        if (names.size() > 1 && settings_->verb != Verb::run) {
            throw UsageError{"one lock's name is expected, " + shown(names[1]) +
                             " is a second one"};
        }
        const auto has_line_break = [](const std::string& name) {
            return name.find('\n') != std::string::npos;
        };
        if (names.size() > 1 && std::ranges::any_of(names, has_line_break)) {
            throw UsageError{
                "a name with a line break can only be held alone, as several are told "
                "to the command one a line"};
        }
        if (settings_->verb == Verb::run && settings_->command.empty()) {
            throw UsageError{"the command is missing; it stands behind '--'"};
        }
    }

    /// What cannot be asked for at once.
    void check_kind() const {
        const bool shared = settings_->sharing != Sharing::none;
        if (settings_->permits && shared) {
            throw UsageError{"--permits is for a semaphore, which is not shared or exclusive"};
        }
        if (!settings_->permits && !shared) return;
        if (settings_->names.size() > 1) {
            throw UsageError{
                "several names are taken as plain locks, without --permits, --shared "
                "and --exclusive"};
        }
        if (settings_->at_least > std::chrono::milliseconds::zero()) {
            throw UsageError{
                "--at-least is for plain locks, without --permits, --shared and "
                "--exclusive"};
        }
    }

    /// Where nothing else was said.
    void complete_uris() {
        if (settings_->uris.empty()) settings_->uris = uris_of_environment();
        settings_->server_is_named = !settings_->uris.empty();
        if (!settings_->server_is_named) settings_->uris = {"redis://127.0.0.1:6379"};
    }

private:
    void take(int code) {
        const std::string argument{::optarg != nullptr ? ::optarg : ""};
        switch (code) {
            case is_name: settings_->names.push_back(argument); break;
            case 'w': settings_->wait = seconds("--wait", argument); break;
            case 'n': settings_->wait = redlatch::Wait::none(); break;
            case 'l': settings_->lease = seconds("--lease", argument); break;
            case 'k': settings_->kill_after = seconds("--kill-after", argument); break;
            case 'u': settings_->uris.push_back(argument); break;
            case 'E': set_exit_code(argument, settings_->codes); break;
            case 'q': settings_->quiet = true; break;
            case 'v': settings_->verbose = true; break;
            case 'y': settings_->yes = true; break;
            case option_uri_file: add_uris_of_file(argument, settings_->uris); break;
            case option_no_fence: settings_->fenced = false; break;
            case option_stoppable: settings_->stoppable = true; break;
            case option_json: settings_->json = true; break;
            case option_key_space: settings_->key_space = argument; break;
            case option_at_least: settings_->at_least = seconds("--at-least", argument); break;
            case option_longest_lease:
                settings_->longest_lease = seconds("--longest-lease", argument);
                break;
            case option_permits: settings_->permits = permits_of(argument); break;
            case option_shared: share(Sharing::reads); break;
            case option_exclusive: share(Sharing::writes); break;
            case ':': throw UsageError{as_given(argv_[::optind - 1], ::optopt) + " needs a value"};
            default: refuse_option();
        }
    }

    void share(Sharing how) {
        if (settings_->sharing != Sharing::none && settings_->sharing != how) {
            throw UsageError{"--shared and --exclusive exclude each other"};
        }
        settings_->sharing = how;
    }

    [[noreturn]] void refuse_option() const {
        // Without the value: it may be a URI with a password.
        const std::string_view word{argv_[::optind - 1]};
        const std::string option{word.substr(0, word.find('='))};
        const auto is_it = [](const ::option& known) { return known.val == ::optopt; };
        if (::optopt != 0 && std::ranges::any_of(options_->long_options, is_it)) {
            throw UsageError{option + " takes no value"};
        }
        if (::optopt != 0) throw UsageError{"there is no option " + shown(as_given("", ::optopt))};
        const std::string others = verbs_with(option);
        if (!others.empty()) throw UsageError{option + " is for " + others};
        throw UsageError{"there is no option " + shown(option) +
                         ", or it is short for more than one"};
    }

    int argc_;
    char** argv_;
    const VerbOptions* options_;
    Settings* settings_;
};

}  // namespace

void read_command_line(int argc, char** argv, Settings& settings) {
    if (argc < 2) throw UsageError{"what to do is missing: run, status or break"};
    settings.verb = verb_of(argv[1]);
    if (settings.verb == Verb::help || settings.verb == Verb::version) return;
    for (int i = 2; i < argc; ++i) {
        const std::string_view word{argv[i]};
        if (word == "--") break;
        if (word == "--help" || word == "--version") {
            settings.verb = verb_of(word);
            return;
        }
    }
    Reader reader{argc - 1, argv + 1, settings};
    reader.read_words();
    reader.check_operands();
    reader.check_kind();
    reader.complete_uris();
}

const char* help_text() {
    return R"(Usage: redlatch run [options] NAME... -- COMMAND [ARG...]
       redlatch status [--json] NAME
       redlatch break [--yes] NAME

run     holds the lock NAME while COMMAND runs, and ends with its exit code; of several names all
        or none
status  says who holds the lock; ends with 0 where it is held, with 1 where it is free
break   takes the lock away from its present holders

Which Redis:
  -u, --uri URI          the server; several times: several masters, a majority decides
      --uri-file FILE    a file that has such URIs, with white space in between; # begins a comment
                         Without both: the environment's REDLATCH_URI, else redis://127.0.0.1:6379
      --key-space PREFIX what the keys beside the lock's own begin with; default redlatch:
Options of run (times in seconds, fractions too):
  -w, --wait SECONDS     give up after that long; default: wait without limit
  -n, --no-wait          try once
  -l, --lease SECONDS    for how long the lock is taken, and renewed while COMMAND runs; default 10. The
                         server keeps that of a machine that died for this and --kill-after.
  -k, --kill-after SECONDS
                         after a loss COMMAND gets TERM, and KILL that long after; default 10
      --at-least SECONDS nobody gets the lock until that long after it was taken
      --longest-lease SECONDS
                         over several masters: the longest lease, with its --kill-after, and the
                         longest --at-least of all their clients; default 30
      --shared           take the lock with others that say --shared
      --exclusive        take such a lock alone
      --permits N        run N such commands at a time: a semaphore
      --no-fence         take no fencing token
      --stoppable        let the terminal's stop key stop COMMAND; nothing renews the lock meanwhile
  -v, --verbose          say that the lock is waited for, and that it was obtained
Options of all:
  -E, --exit-code NAME=CODE[,...]
                         change an exit code: usage (64), type (65), server (69), internal (70),
                         busy (75), denied (77), lost (79)
  -q, --quiet            say nothing on standard error; break still asks
      --help, --version

COMMAND sees REDLATCH_NAME, REDLATCH_TOKEN and REDLATCH_FENCE; of several names REDLATCH_NAMES and
REDLATCH_FENCES, one a line.
)";
}

}  // namespace tool
