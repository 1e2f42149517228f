// What a lock with a lease cannot prevent, and a fencing token can. A worker is stopped between "I have
// the lock" and its write, for longer than its lease; meanwhile another one takes the lock and
// writes. Then the first wakes up and writes too: over the other's work, unless the store looks at
// the fencing token and refuses.

#include "own_redis.hpp"
#include "plain_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <sys/wait.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

using namespace std::chrono_literals;

namespace {

// [fenced_write]
constexpr const char* fenced_write = R"lua(
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < seen then
  return 0  -- somebody who had the lock later has been here
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'text', ARGV[2])
return 1
)lua";
// [fenced_write]

/// The resource that the lock protects. It knows of no lock.
class Store {
public:
    explicit Store(const std::string& uri) : redis_(uri) {}

    /// Whoever comes may write.
    bool write(const std::string& text) {
        redis_.command({"HSET", report, "text", text});
        return true;
    }

    /// False for who has been overtaken.
    bool write(std::uint64_t fence, const std::string& text) {
        const auto done =
            redis_.command({"EVAL", fenced_write, "1", report, std::to_string(fence), text});
        return done->integer == 1;
    }

    std::string read() { return redis_.command({"HGET", report, "text"})->str; }
    void clear() { redis_.command({"DEL", report}); }

private:
    static constexpr const char* report = "fenced_store:report";

    example::PlainRedis redis_;
};

enum class Check { none, fence };
enum class End { written, refused };

/// Takes the lock, and lets `meanwhile` happen just before it writes.
template <class Meanwhile>
End work(const std::string& uri, Check check, const std::string& text, Meanwhile meanwhile) {
    redlatch::Client redis{uri};
    Store store{uri};
    const auto make_report = [&] {
        meanwhile();
        return text;
    };
    // [fenced_store]
    redlatch::Lock<redlatch::Fenced<redlatch::Simple>> lock{redis, "report", {.lease = 500ms}};
    redlatch::Held held = lock.acquire().value();
    const std::string report = make_report();  // may take longer than the lease
    // [fenced_store]
    if (check == Check::none) return store.write(report) ? End::written : End::refused;
    // [fenced_store]
    return store.write(held.fence(), report) ? End::written : End::refused;
    // [fenced_store]
}

/// A process that stops itself where it hurts most.
class SlowWorker {
public:
    SlowWorker(const std::string& uri, Check check) {
        const ::pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ < 0) throw std::runtime_error{"fork"};
        if (pid_ > 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        const End end = work(uri, check, "the slow one's", [] { ::raise(SIGSTOP); });
        ::_exit(static_cast<int>(end));
    }
    SlowWorker(const SlowWorker&) = delete;
    SlowWorker& operator=(const SlowWorker&) = delete;
    ~SlowWorker() {
        if (pid_ < 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }

    void wait_until_stopped() const {
        int status = 0;
        ::waitpid(pid_, &status, WUNTRACED);
        example::require(WIFSTOPPED(status), "the slow worker has the lock and stops");
    }

    End wake_up() {
        ::kill(pid_, SIGCONT);
        int status = 0;
        ::waitpid(std::exchange(pid_, -1), &status, 0);
        example::require(WIFEXITED(status), "the slow worker ends by itself");
        return static_cast<End>(WEXITSTATUS(status));
    }

private:
    ::pid_t pid_ = -1;
};

/// What became of the slow worker's write.
End overtake(const std::string& uri, Check check) {
    Store store{uri};
    store.clear();
    SlowWorker slow{uri, check};
    slow.wait_until_stopped();
    const End fast = work(uri, check, "the fast one's", [] {});  // as soon as the lease is over
    example::require(fast == End::written, "the fast worker writes");
    const End end = slow.wake_up();
    std::printf("%-22s the slow worker's write is %s; the report is %s\n",
                check == Check::fence ? "with fencing tokens:" : "without:",
                end == End::written ? "taken  " : "refused", store.read().c_str());
    return end;
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        const End unchecked = overtake(uri, Check::none);
        example::require(unchecked == End::written, "nobody stops a late write");
        example::require(Store{uri}.read() == "the slow one's", "the newer report is lost");

        const End checked = overtake(uri, Check::fence);
        example::require(checked == End::refused, "the store refuses a late write");
        example::require(Store{uri}.read() == "the fast one's", "the newer report stays");
        Store{uri}.clear();
    });
}
