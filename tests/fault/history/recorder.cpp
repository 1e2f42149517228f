#include "recorder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace redlatch::test::fault {

Recorder::Recorder(const std::string& path)
    : file_{::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)} {
    if (!file_) throw std::system_error{errno, std::generic_category(), "open " + path};
}

void Recorder::write(Event event) {
    if (event.at == Time{}) event.at = now();
    if (event.process == 0) event.process = ::getpid();
    if (event.thread == 0) event.thread = ::gettid();
    const std::string line = to_line(event) + '\n';
    if (::write(file_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        throw std::system_error{errno, std::generic_category(), "write the history"};
    }
}

}  // namespace redlatch::test::fault
