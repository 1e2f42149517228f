#include "wall_clock.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace redlatch::test::fault {

WallClock::WallClock(std::string file) : file_{std::move(file)} {
    const UniqueFd fd{::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    if (!fd || ::ftruncate(fd.get(), sizeof(std::int64_t)) != 0) {
        throw std::system_error{errno, std::generic_category(), "make " + file_};
    }
    void* const page =
        ::mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (page == MAP_FAILED) throw std::system_error{errno, std::generic_category(), "map " + file_};
    offset_ = static_cast<volatile std::int64_t*>(page);
}

WallClock::~WallClock() {
    ::munmap(const_cast<std::int64_t*>(offset_), sizeof(std::int64_t));
}

std::map<std::string, std::string> WallClock::env() const {
    return {{"LD_PRELOAD", REDLATCH_WALL_CLOCK_SHIM}, {"REDLATCH_CLOCK_FILE", file_}};
}

void WallClock::set(std::chrono::microseconds offset) {
    *offset_ = offset.count();
}

}  // namespace redlatch::test::fault
