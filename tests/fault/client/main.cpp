// A client process: some threads that use a few locks until a line on standard input, or its end, tells
// them to stop. Its only argument is a ClientPlan.

#include "../history/recorder.hpp"
#include "../lab/dice.hpp"
#include "../lab/plan.hpp"
#include "async_worker.hpp"
#include "event_loop.hpp"
#include "loss_watch.hpp"
#include "seeded_bugs.hpp"
#include "slow_observer.hpp"
#include "support/sanitizers.hpp"
#include "support/wait.hpp"
#include "task.hpp"
#include "worker.hpp"
#include <redlatch/redlatch.hpp>

#if defined(REDLATCH_TEST_ASAN) || defined(REDLATCH_TEST_TSAN)
#include <sanitizer/allocator_interface.h>
#endif

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test::fault {
namespace {

/// A policy by its name, as threads and coroutines take it.
struct Choice {
    const char* name;
    void (Worker::*request)(const char* name);
    AsyncLock async;  ///< empty where coroutines cannot take it
    bool needs_one_master = false;
};

template <class Policy>
Choice choice(const char* name) {
    return {name, &Worker::request<Policy>, async_lock<Policy>(name, mistake_of<Policy>)};
}

template <class Policy>
Choice permits(const char* name) {
    return {name, &Worker::request_permits<Policy>, {}, true};
}

template <class Policy>
Choice set(const char* name) {
    return {name, &Worker::request_set<Policy>, {}};
}

/// Which locks a subject means. A new policy of the library's is added here.
std::vector<Choice> choices_of(const std::string& subject) {
    static const std::map<std::string, std::vector<Choice>> subjects{
        {"library",
         {choice<Simple>("Simple"), choice<Reentrant>("Reentrant"),
          choice<Watchdog<Simple>>("Watchdog<Simple>"),
          choice<Watchdog<Reentrant>>("Watchdog<Reentrant>"),
          choice<Fenced<Simple>>("Fenced<Simple>"),
          choice<Watchdog<Fenced<Reentrant>>>("Watchdog<Fenced<Reentrant>>"),
          choice<Fenced<Shared>>("Fenced<Shared>"), choice<Watchdog<Shared>>("Watchdog<Shared>"),
          permits<Permits>("Permits"), set<Watchdog<Simple>>("LockSet<Watchdog<Simple>>"),
          set<Simple>("LockSet<Simple>")}},
        {"shared",
         {choice<Shared>("Shared"), choice<Fenced<Shared>>("Fenced<Shared>"),
          choice<Watchdog<Shared>>("Watchdog<Shared>")}},
        {"permits", {permits<Permits>("Permits"), permits<Watchdog<Permits>>("Watchdog<Permits>")}},
        {"sets",
         {set<Watchdog<Simple>>("LockSet<Watchdog<Simple>>"), set<Simple>("LockSet<Simple>")}},
        {"a writer beside readers", {choice<NeverFull<Shared>>("NeverFull<Shared>")}},
        {"a permit too many", {permits<NeverFull<Permits>>("NeverFull<Permits>")}},
        {"a part of a set", {set<PartOfSet>("PartOfSet")}},
        {"fenced",
         {choice<Fenced<Simple>>("Fenced<Simple>"), choice<Fenced<Reentrant>>("Fenced<Reentrant>"),
          choice<Watchdog<Fenced<Simple>>>("Watchdog<Fenced<Simple>>")}},
        {"simple", {choice<Simple>("Simple")}},
        {"release by DEL", {choice<ReleaseByDel>("ReleaseByDel")}},
        {"validity from the reply", {choice<CountsFromReply>("CountsFromReply")}},
        {"extend without owner check", {choice<ExtendAnyones>("ExtendAnyones")}},
        {"reused token", {choice<ReusedToken>("ReusedToken")}},
        {"relative count", {choice<RelativeCount>("RelativeCount (Reentrant)")}},
        {"fence from a counter alone", {choice<CounterAlone>("CounterAlone (Fenced)")}},
        {"silent release", {choice<SilentRelease>("SilentRelease")}},
        {"reentrant", {choice<Reentrant>("Reentrant")}},
        {"mixed", {choice<Reentrant>("Reentrant")}},
        {"watched", {choice<Watchdog<Simple>>("Watchdog<Simple>")}},
        {"deaf", {choice<Deaf>("Deaf")}},
        {"completes twice", {choice<CompletesTwice>("CompletesTwice")}},
        {"delivers what is over", {choice<DeliversLate>("DeliversLate")}},
        {"completes late", {choice<Simple>("Simple")}},
        {"validity from the delivery", {choice<CountsFromReply>("CountsFromReply")}},
        {"keeps what nobody takes", {choice<KeepsUntaken>("KeepsUntaken (Watchdog)")}},
        {"unwatched", {choice<Unwatched>("Watchdog<Simple>, so it says")}},
        {"vote after a restart", {choice<Simple>("Simple")}},
    };
    const auto found = subjects.find(subject);
    if (found == subjects.end()) throw std::runtime_error{"no such subject: " + subject};
    return found->second;
}

long long entries_of(const char* folder) {
    return std::distance(std::filesystem::directory_iterator{folder},
                         std::filesystem::directory_iterator{});
}

#if defined(REDLATCH_TEST_ASAN) || defined(REDLATCH_TEST_TSAN)
/// A sanitizer keeps what was freed, so resident memory grows with the time.
long long memory_kib() {
    return static_cast<long long>(__sanitizer_get_current_allocated_bytes() / 1024);
}
#else
/// That is resident.
long long memory_kib() {
    std::ifstream file{"/proc/self/statm"};
    long long size = 0;
    long long resident = 0;
    file >> size >> resident;
    return resident * ::getpagesize() / 1024;
}
#endif

std::map<std::string, long long> in_use() {
    return {{"descriptors", entries_of("/proc/self/fd")},
            {"threads", entries_of("/proc/self/task")},
            {"memory_kib", memory_kib()}};
}

/// How many threads have which name: what it takes to know which one is left.
std::map<std::string, long long> names_of_threads() {
    std::map<std::string, long long> names;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        std::ifstream file{task.path() / "comm"};
        std::string name;
        if (std::getline(file, name)) ++names["thread '" + name + "'"];
    }
    return names;
}

void note_usage(Recorder& recorder, const char* name) {
    Event event;
    event.op = Op::snapshot;
    event.stage = Stage::note;
    event.outcome = name;
    event.counts = in_use();
    event.counts.merge(names_of_threads());
    recorder.write(event);
}

ClientOptions options_of(const ClientPlan& plan) {
    Dice dice{plan.seed};
    const auto command_timeout = dice.in(plan.command_timeout);
    ClientOptions options;
    for (const std::string& server : plan.servers) options.uris.emplace_back(server);
    options.connect_timeout = command_timeout;
    options.command_timeout = command_timeout;
    options.longest_lease = plan.longest_lease();
    if (dice.percent(50)) options.connections = Connections::shared;
    if (plan.slow_observer) options.observer = std::make_shared<SlowObserver>();
    return options;
}

/// Ends the client, with all that its threads are doing with it.
void close(ClientDoor& door, Recorder& recorder, std::chrono::milliseconds command_timeout) {
    Event event;
    event.op = Op::close;
    event.stage = Stage::invoke;
    event.call = recorder.next_number();
    std::unique_ptr<Client> client;
    {
        const std::lock_guard lock{door.mutex};
        client = std::move(door.client);
        event.at = now();
        event.limit = event.at + 3 * command_timeout;
        recorder.write(event);
    }
    client.reset();
    event.at = now();
    event.stage = Stage::ok;
    event.limit.reset();
    recorder.write(event);
}

/// The coroutines of a process, and their loop.
class AsyncWorkers {
public:
    AsyncWorkers(const Worker::Place& place, std::vector<Choice> choices,
                 const std::stop_token& stop, const std::stop_token& calls_stop)
        : choices_{std::move(choices)}, ended_{place.plan->coroutines} {
        std::erase_if(choices_, [](const Choice& one) { return one.async.awaitable == nullptr; });
        if (place.plan->coroutines == 0) return;
        constexpr std::chrono::seconds too_long{4};
        const bool lazy = place.plan->subject == "completes late";
        loop_ = std::make_unique<EventLoop>(lazy ? too_long : Time{0});
        for (int i = 0; i < place.plan->coroutines; ++i) {
            const std::uint64_t seed =
                place.plan->seed * 1000 + first_seed + static_cast<std::uint64_t>(i);
            workers_.push_back(
                std::make_unique<AsyncWorker>(place, seed, stop, calls_stop, *loop_));
            tasks_.push_back(work(*workers_.back(), stop));
        }
        loop_->call_at(now(), [this] {
            for (Task& task : tasks_) task.start();
        });
    }
    AsyncWorkers(const AsyncWorkers&) = delete;
    AsyncWorkers& operator=(const AsyncWorkers&) = delete;
    /// Waits for their end.
    ~AsyncWorkers() { ended_.wait(); }

private:
    Task work(AsyncWorker& worker, const std::stop_token stop) {
        while (!stop.stop_requested() && !choices_.empty()) {
            const Choice& next = choices_[worker.dice().below(choices_.size())];
            co_await worker.request(next.async);
        }
        ended_.count_down();
    }

    static constexpr std::uint64_t first_seed = 500;

    std::vector<Choice> choices_;
    std::latch ended_;
    std::vector<std::unique_ptr<AsyncWorker>> workers_{};
    std::vector<Task> tasks_{};
    std::unique_ptr<EventLoop> loop_{};
};

void work_until_told(const ClientPlan& plan, Recorder& recorder) {
    constexpr std::chrono::seconds warm_up{2};
    std::vector<Choice> choices = choices_of(plan.subject);
    if (plan.servers.size() > 1) {
        std::erase_if(choices, [](const Choice& one) { return one.needs_one_master; });
    }
    const ClientOptions options = options_of(plan);
    ClientDoor door;
    door.client = std::make_unique<Client>(options);
    LossWatch losses{recorder};
    const Worker::Place place{&door, &recorder, &losses, &plan, options.command_timeout};
    std::stop_source over;
    // Whose client is to be ended under it does not end its calls by itself.
    const std::stop_token calls_stop = plan.closes ? std::stop_token{} : over.get_token();
    std::vector<std::jthread> threads;
    for (int i = 0; i < plan.threads; ++i) {
        const std::uint64_t seed = plan.seed * 1000 + static_cast<std::uint64_t>(i);
        threads.emplace_back([&, seed] {
            Worker worker{place, seed, over.get_token(), calls_stop};
            while (!over.stop_requested()) {
                const Choice& next = choices[worker.dice().below(choices.size())];
                (worker.*next.request)(next.name);
            }
        });
    }
    std::optional<AsyncWorkers> coroutines{std::in_place, place, choices, over.get_token(),
                                           calls_stop};
    std::jthread observer{[&] {
        static_cast<void>(eventually([&] { return over.stop_requested(); }, warm_up));
        note_usage(recorder, "warm");
    }};
    std::string line;
    std::getline(std::cin, line);
    over.request_stop();
    if (plan.closes) close(door, recorder, options.command_timeout);
    threads.clear();
    coroutines.reset();
    observer.join();
    note_usage(recorder, "end");
}

/// The first one brings a thread of a sanitizer's own along. The kernel may list a thread for a moment
/// after it was joined.
void start_first_thread() {
    std::string entry;
    std::thread{[&entry] { entry = "/proc/self/task/" + std::to_string(::gettid()); }}.join();
    static_cast<void>(eventually([&entry] { return !std::filesystem::exists(entry); }));
}

int run(const ClientPlan& plan) {
    Recorder recorder{plan.history};
    start_first_thread();
    const auto before = in_use();
    note_usage(recorder, "before");
    work_until_told(plan, recorder);
    static_cast<void>(eventually([&] { return in_use().at("threads") == before.at("threads"); },
                                 std::chrono::seconds{15}));
    note_usage(recorder, "after");
    return 0;
}

}  // namespace
}  // namespace redlatch::test::fault

int main(int argc, char** argv) try {
    if (argc != 2) throw std::runtime_error{"one argument: a plan"};
    return redlatch::test::fault::run(redlatch::test::fault::plan_from_text(argv[1]));
} catch (const std::exception& error) {
    std::fprintf(stderr, "fault client: %s\n", error.what());
    return 1;
}
