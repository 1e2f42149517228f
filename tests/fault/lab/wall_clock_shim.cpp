// Loaded into a redis-server (LD_PRELOAD): the wall clock there is ahead by as many microseconds as the
// file named by REDLATCH_CLOCK_FILE says, a 64-bit number that may change at any time. Monotonic clocks
// stay as they are. It uses neither the heap nor locks, since the server's allocator asks for the time
// before it is ready.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

const volatile std::int64_t* offset_in_file() {
    const char* const path = std::getenv("REDLATCH_CLOCK_FILE");
    const int file = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* const page = ::mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    return page == MAP_FAILED ? nullptr : static_cast<const volatile std::int64_t*>(page);
}

const volatile std::int64_t* offset = nullptr;

__attribute__((constructor)) void find_offset() {
    offset = offset_in_file();
}

constexpr std::int64_t nanoseconds_per_second = 1'000'000'000;

timespec shifted(timespec time) {
    if (offset == nullptr) return time;
    const std::int64_t moment =
        time.tv_sec * nanoseconds_per_second + time.tv_nsec + *offset * 1000;
    time.tv_sec = static_cast<time_t>(moment / nanoseconds_per_second);
    time.tv_nsec = static_cast<long>(moment % nanoseconds_per_second);
    return time;
}

timespec wall_clock() {
    timespec time{};
    ::syscall(SYS_clock_gettime, CLOCK_REALTIME, &time);
    return shifted(time);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
    const long result = ::syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) *time = shifted(*time);
    return static_cast<int>(result);
}

int gettimeofday(timeval* __restrict time, void* __restrict) noexcept {
    const timespec now = wall_clock();
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t* result) noexcept {
    const timespec now = wall_clock();
    if (result != nullptr) *result = now.tv_sec;
    return now.tv_sec;
}
}
