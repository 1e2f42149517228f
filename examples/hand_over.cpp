// A lock goes from one process to another, and is free at no time in between: a front end takes the lock on
// a film, checks the order, and gives lock and order to a worker. The ticket is plain text.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

using namespace std::chrono_literals;

namespace {

void render() {
    std::this_thread::sleep_for(20ms);
}

/// The other process: what it answers is its exit code.
int work(const std::string& uri, const std::string& text) {
    redlatch::Client redis{example::options_for(uri)};
    // [adopt]
    redlatch::Lock<> lock{redis, "film:7"};
    redlatch::Result<redlatch::Held> held = lock.adopt(redlatch::Ticket{text});
    if (!held) {  // too late, or somebody else was faster: Errc::lost
        std::printf("worker: %s\n", held.error().describe().c_str());
        return 1;
    }
    render();
    // [adopt]
    std::printf("worker: done\n");
    return held->release().value() == redlatch::Release::released ? 0 : 1;
}

/// Runs this program once more, as the worker, and returns its exit code.
int run_worker(const std::string& uri, const std::string& text) {
    const ::pid_t child = ::fork();
    if (child == 0) {
        ::execl("/proc/self/exe", "hand_over", "--work", uri.c_str(), text.c_str(), nullptr);
        ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 4 && std::strcmp(argv[1], "--work") == 0) return work(argv[2], argv[3]);
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{example::options_for(uri)};
        redlatch::Lock<> lock{redis, "film:7"};

        // [detach]
        redlatch::Held held = lock.acquire().value();
        const redlatch::Ticket ticket = held.detach().value();  // from here on nobody relies on it
        // [detach]
        example::require(!held.held(), "the front end has given its lock away");
        example::require(!lock.try_lock(), "the lock is not free meanwhile");
        example::require(run_worker(uri, ticket.text()) == 0, "the worker goes on with it");
        example::require(run_worker(uri, ticket.text()) == 1, "a ticket is good for once");
        example::require(lock.try_lock(), "the worker has released it");
    });
}
