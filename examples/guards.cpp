// The standard library's guards work on a Lock; LockGuard and Held are for those who want an answer
// instead of an exception.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

namespace {

int works = 0;
int refusals = 0;

void work() {
    ++works;
}
void log(const redlatch::Error& error) {
    ++refusals;
    std::printf("no lock: %s\n", error.describe().c_str());
}

void standard_guards(redlatch::Client& redis) {
    redlatch::Lock<> lock{redis, "stock:7"};

    // [lock_guard]
    {
        std::lock_guard scope{lock};  // waits without limit
        work();
    }
    // [lock_guard]

    // [unique_lock]
    if (std::unique_lock scope{lock, 2s}) {  // waits up to 2 s
        work();
    }
    // [unique_lock]
}

void two_locks(redlatch::Client& redis) {
    // [scoped_lock]
    redlatch::Lock<> from{redis, "account:1"};
    redlatch::Lock<> to{redis, "account:2"};
    {
        std::scoped_lock both{from, to};  // in whatever order: no deadlock
        work();
    }
    // [scoped_lock]
    example::require(!from.inspect().value().locked, "both are free afterwards");
    example::require(!to.inspect().value().locked, "both are free afterwards");
}

void guard_that_says_no(redlatch::Client& redis, redlatch::Client& elsewhere) {
    redlatch::Lock<> rival{elsewhere, "stock:7"};
    redlatch::Lock<> lock{redis, "stock:7"};

    std::unique_lock taken{rival};
    // [lock_guard_with_answer]
    if (redlatch::LockGuard guard{lock, 200ms}) {
        work();
    } else {
        log(guard.error());  // says whether it was in use, or the server was down, or what else
    }
    // [lock_guard_with_answer]
    taken.unlock();
}

void held(redlatch::Client& redis) {
    redlatch::Lock<> lock{redis, "stock:7"};

    // [held]
    redlatch::Result<redlatch::Held> held = lock.acquire({.wait = 2s, .lease = 10s});
    if (!held) return log(held.error());
    work();
    redlatch::Result<redlatch::Release> outcome = held->release();  // or leave it to the destructor
    // [held]

    example::require(outcome && *outcome == redlatch::Release::released, "it was held to the end");
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        redlatch::Client elsewhere{uri};  // stands for another process
        standard_guards(redis);
        two_locks(redis);
        guard_that_says_no(redis, elsewhere);
        held(redis);
        std::printf("worked %d times, was refused %d time\n", works, refusals);
        example::require(works == 4 && refusals == 1, "only the lock in use was refused");
    });
}
