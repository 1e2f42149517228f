#include "support/still_clock.hpp"

#include "support/socket.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace redlatch::test {

StillClock::StillClock() {
    const UniqueFd file{::open(folder_.file("clock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    constexpr std::int64_t start = 1'800'000'000'000'000;
    if (!file || ::pwrite(file.get(), &start, sizeof start, 0) != sizeof start) {
        throw std::system_error{errno, std::generic_category(), "write the clock's file"};
    }
    void* const mapped =
        ::mmap(nullptr, sizeof start, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) {
        throw std::system_error{errno, std::generic_category(), "map the clock's file"};
    }
    shown_ = static_cast<volatile std::int64_t*>(mapped);
}

StillClock::~StillClock() {
    ::munmap(const_cast<std::int64_t*>(shown_), sizeof *shown_);
}

std::map<std::string, std::string> StillClock::env() const {
    return {{"LD_PRELOAD", REDLATCH_STILL_CLOCK}, {"STILL_CLOCK", folder_.file("clock")}};
}

}  // namespace redlatch::test
