// Every call ends by its deadline: all calls, in all situations, with a server that falls silent at each
// step of them. A call that may wait without limit ends when it is stopped, when the client is closed,
// and, nested, when the outer hold's validity is over.

#include "fault_tools.hpp"
#include "support/proxy.hpp"
#include "support/redis_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds patience{200};           // what clients give one command
constexpr milliseconds generous_slack{10'000};  // the machine may be busy, and other threads many
constexpr milliseconds wait_of_tries{150};
constexpr milliseconds before_the_end{300};  // how long a call without limit is left alone
constexpr milliseconds brief_lease{900};     // for a nested wait that ends with it
constexpr auto client_bound = 3 * patience;

/// How the lock is when the call begins.
enum class Scene {
    free,
    theirs,     ///< another client's
    local,      ///< held by another thread of this client
    mine,       ///< held by the calling thread
    with_heir,  ///< the same, and another thread of this client waits for it
    nested,     ///< held twice by the calling thread
};

/// What ends a wait without limit.
enum class End { none, stop, close, validity };

template <class Policy>
struct Place {
    Place(const std::string& uri, const std::string& name, Lease lease)
        : client{std::make_unique<Client>(options_for(uri, patience))},
          lock{std::make_unique<Lock<Policy>>(*client, name, LockOptions{.lease = lease})} {}

    std::unique_ptr<Client> client;
    std::unique_ptr<Lock<Policy>> lock;
    std::optional<Held> held;
    std::unique_ptr<LockGuard> guard;
    std::stop_source stop;
};

/// A call of the interface.
struct Call {
    const char* name;
    Scene scene;
    End end = End::none;
    milliseconds bound = patience;
};

/// What came of one; `code` where it failed.
using Outcome = std::optional<Errc>;

template <class T>
Outcome outcome_of(const Result<T>& result) {
    return result ? Outcome{} : Outcome{result.error().code};
}

template <class Function>
Outcome outcome_of_throwing(Function&& call) {
    const std::optional<Error> error = thrown_by(call);
    return error ? Outcome{error->code} : Outcome{};
}

/// What has to be there before the call could not be had.
struct Unprepared : std::runtime_error {
    using runtime_error::runtime_error;
};

template <class Function>
void prepared(Function&& prepare) {
    try {
        prepare();
    } catch (const std::exception& error) {
        throw Unprepared{error.what()};
    }
}

/// What `attempt` complains of, called with a name for its locks. A busy machine may need longer for what has to be
/// there before than a client's patience: then all begins anew.
template <class Function>
std::string complaints_of(Function&& attempt, const std::string& job) {
    std::string words;
    int tries = 0;
    const auto is_made = [&] {
        try {
            words = attempt(job + " of attempt " + std::to_string(++tries));
        } catch (const Unprepared& error) {
            words = error.what();
            return false;
        } catch (const std::exception& error) {
            words = error.what();
        }
        return true;
    };
    static_cast<void>(eventually(is_made, 3 * generous_limit));
    return words;
}

/// How calls are made, by name. A hold is there as the call wants it: `prepare` saw to that.
template <class Policy>
Outcome make(const std::string& name, Place<Policy>& at) {
    Lock<Policy>& lock = *at.lock;
    if (name == "lock") return outcome_of_throwing([&] { lock.lock(); });
    if (name == "lock_with_a_lease") return outcome_of_throwing([&] { lock.lock(20s); });
    if (name == "acquire") return outcome_of(lock.acquire({.stop = at.stop.get_token()}));
    if (name == "guard") {
        at.guard = std::make_unique<LockGuard>(lock);
        return *at.guard ? Outcome{} : Outcome{at.guard->error().code};
    }
    if (name == "try_lock") {
        return outcome_of_throwing([&] { static_cast<void>(lock.try_lock()); });
    }
    if (name == "try_lock_for") {
        return outcome_of_throwing([&] { static_cast<void>(lock.try_lock_for(wait_of_tries)); });
    }
    if (name == "try_lock_until") {
        const auto end = std::chrono::steady_clock::now() + wait_of_tries;
        return outcome_of_throwing([&] { static_cast<void>(lock.try_lock_until(end)); });
    }
    if (name == "try_lock_with_a_lease") {
        return outcome_of_throwing([&] { static_cast<void>(lock.try_lock(wait_of_tries, 20s)); });
    }
    if (name == "acquire_for") return outcome_of(lock.acquire({.wait = wait_of_tries}));
    if (name == "acquire_at_once") return outcome_of(lock.acquire({.wait = Wait::none()}));
    if (name == "guard_for") {
        at.guard = std::make_unique<LockGuard>(lock, wait_of_tries);
        return *at.guard ? Outcome{} : Outcome{at.guard->error().code};
    }
    if (name == "inspect") return outcome_of(lock.inspect());
    if (name == "force_unlock") return outcome_of(lock.force_unlock());
    if (name == "ping") return outcome_of(at.client->ping());
    if (name == "release") return outcome_of(lock.release());
    if (name == "extend") return outcome_of(lock.extend(40s));
    if (name == "held_release") return outcome_of(at.held->release());
    if (name == "held_extend") return outcome_of(at.held->extend(40s));
    if (name == "unlock") lock.unlock();
    if (name == "destroy_held") at.held.reset();
    if (name == "destroy_guard") at.guard.reset();
    if (name == "destroy_lock") at.lock.reset();
    if (name == "destroy_client") at.client.reset();
    return {};
}

std::vector<Call> calls_of_who_waits(Scene scene) {
    std::vector<Call> calls{
        {"try_lock", scene},
        {"try_lock_for", scene, End::none, wait_of_tries},
        {"try_lock_until", scene, End::none, wait_of_tries},
        {"try_lock_with_a_lease", scene, End::none, wait_of_tries},
        {"acquire_for", scene, End::none, wait_of_tries},
        {"acquire_at_once", scene},
        {"guard_for", scene, End::none, wait_of_tries},
        {"acquire", scene, End::stop, 50ms},
        {"acquire", scene, End::close, client_bound},
        {"lock", scene, End::close, client_bound},
        {"lock_with_a_lease", scene, End::close, client_bound},
        {"guard", scene, End::close, client_bound},
    };
    // A nested one has no place anywhere: where no answer comes, it has at least one command's time.
    if (scene == Scene::mine) {
        for (Call& call : calls) call.bound += patience;
        calls.push_back({"lock", scene, End::validity, patience});
        calls.push_back({"acquire", scene, End::validity, patience});
        calls.push_back({"guard", scene, End::validity, patience});
    }
    return calls;
}

std::vector<Call> calls_of_who_has_it(Scene scene) {
    return {{"release", scene},       {"unlock", scene},
            {"extend", scene},        {"held_release", scene},
            {"held_extend", scene},   {"destroy_held", scene},
            {"destroy_guard", scene}, {"destroy_lock", scene},
            {"inspect", scene},       {"force_unlock", scene},
            {"ping", scene},          {"destroy_client", scene, End::none, client_bound}};
}

std::vector<Call> all_calls() {
    std::vector<Call> all;
    const auto add = [&all](std::vector<Call> calls) {
        all.insert(all.end(), calls.begin(), calls.end());
    };
    for (const Scene scene : {Scene::free, Scene::theirs, Scene::local, Scene::mine}) {
        add(calls_of_who_waits(scene));
    }
    for (const Scene scene : {Scene::mine, Scene::with_heir, Scene::nested}) {
        add(calls_of_who_has_it(scene));
    }
    for (const Scene scene : {Scene::free, Scene::theirs}) {
        add({{"inspect", scene}, {"force_unlock", scene}, {"ping", scene}});
    }
    return all;
}

std::string name_of(Scene scene) {
    switch (scene) {
        case Scene::free: return "free";
        case Scene::theirs: return "theirs";
        case Scene::local: return "local";
        case Scene::mine: return "mine";
        case Scene::with_heir: return "with_heir";
        case Scene::nested: return "nested";
    }
    return {};
}

std::string name_of(End end) {
    switch (end) {
        case End::none: return "by_itself";
        case End::stop: return "when_stopped";
        case End::close: return "when_closed";
        case End::validity: return "with_the_outer_hold";
    }
    return {};
}

void PrintTo(const Call& call, std::ostream* out) {
    *out << call.name << ' ' << name_of(call.scene) << ' ' << name_of(call.end);
}

/// When the server falls silent.
struct Silence {
    int answers;  ///< so many come first
    Way way;      ///< whether commands still arrive there
    bool known;   ///< the client has been connected before

    friend std::ostream& operator<<(std::ostream& out, const Silence& silence) {
        return out << "silent after " << silence.answers << " answers to "
                   << (silence.way == Way::both ? "commands that were lost"
                                                : "what was carried out")
                   << (silence.known ? "" : ", on a first connection");
    }
};

/// One call, under one silence. Says what was not as it should be.
template <class Policy>
class Attempt {
public:
    Attempt(RedisServer& server, const Call& call, const Silence& silence, const std::string& name)
        : call_{call},
          silence_{silence},
          proxy_{server.uri()},
          other_{server.uri()},
          theirs_{other_, name},
          at_{proxy_.uri(), name, call.end == End::validity ? brief_lease : 30s} {}
    ~Attempt() { proxy_.pass(); }
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    std::string run() {
        auto done = in_background([this] {
            try {
                prepared([this] { prepare(); });
            } catch (...) {
                ready_.set_exception(std::current_exception());
                throw;
            }
            const Stopwatch watch;
            ready_.set_value();
            const Outcome outcome = make(call_.name, at_);
            const auto took = watch.elapsed();
            return std::pair{outcome, took};
        });
        ready_.get_future().get();
        if (call_.end != End::none) end_it();
        const Stopwatch watch;
        if (!finishes(done, limit() + generous_slack)) {
            complain("did not come back");
            proxy_.pass();
        }
        const auto [outcome, took] = done.get();
        if (call_.end == End::none && took > limit() + generous_slack) complain("came back late");
        judge(outcome);
        clean_up();
        return text_.str();
    }

private:
    milliseconds limit() const {
        return call_.end == End::validity ? brief_lease + call_.bound : call_.bound;
    }

    static bool destroys_held(const std::string& name) {
        return name.starts_with("held_") || name == "destroy_held";
    }

    void prepare() {
        const std::string name = call_.name;
        if (silence_.known && !eventually([this] { return at_.client->ping().has_value(); })) {
            throw std::runtime_error{"no server"};
        }
        if (call_.scene == Scene::theirs) theirs_hold_ = theirs_.acquire().value();
        if (call_.scene == Scene::local) {
            in_background([this] { local_hold_ = at_.lock->acquire().value(); }).get();
        }
        if (call_.scene == Scene::nested) at_.lock->lock();
        const bool mine = call_.scene == Scene::mine || call_.scene == Scene::with_heir ||
                          call_.scene == Scene::nested;
        if (mine && destroys_held(name)) {
            at_.held = at_.lock->acquire().value();
        } else if (mine && name == "destroy_guard") {
            at_.guard = std::make_unique<LockGuard>(*at_.lock);
        } else if (mine) {
            at_.lock->lock();
        }
        if (call_.scene == Scene::with_heir) bring_heir();
        proxy_.black_hole_after(silence_.answers, silence_.way);
    }

    void bring_heir() {
        heirs_lock_.emplace(*at_.client, at_.lock->name());
        heir_ = in_background(
            [this] { return outcome_of(heirs_lock_->acquire({.stop = heir_stop_.get_token()})); });
        // Whether it has come to the lock table by then is left to chance: it may come later, too.
        std::this_thread::sleep_for(20ms);
    }

    void end_it() {
        if (call_.end == End::validity) return;
        std::this_thread::sleep_for(before_the_end);
        if (call_.end == End::stop) at_.stop.request_stop();
        if (call_.end == End::close) close();
    }

    void close() {
        const Stopwatch watch;
        at_.client.reset();
        if (watch.elapsed() > client_bound + generous_slack) complain("~Client came back late");
    }

    /// Where a wait without limit has failed, it did so for the reason that ended it.
    void judge(const Outcome& outcome) {
        if (!outcome) return;
        // A lock that was had is lost with its validity, and a client that is closed may have been
        // asked by then.
        const Errc expected = call_.end == End::validity ? Errc::lost : Errc::cancelled;
        if (call_.end != End::none && *outcome != expected) {
            complain("failed with: " + make_error_code(*outcome).message());
        }
    }

    void clean_up() {
        heir_stop_.request_stop();
        if (heir_ && !finishes(*heir_, 50ms + generous_slack)) {
            complain("the thread behind did not come back");
            proxy_.pass();
        }
        const Stopwatch watch;
        local_hold_.reset();
        at_.held.reset();
        at_.guard.reset();
        at_.lock.reset();
        if (watch.elapsed() > 4 * patience + generous_slack) complain("~Lock came back late");
        if (at_.client != nullptr) close();
        if (heir_) heir_->wait();
    }

    void complain(const std::string& words) { text_ << "  " << silence_ << ": " << words << '\n'; }

    const Call call_;
    const Silence silence_;
    Proxy proxy_;
    Client other_;
    Lock<Policy> theirs_;
    std::optional<Held> theirs_hold_;
    Place<Policy> at_;
    std::optional<Held> local_hold_;
    std::stop_source heir_stop_;
    std::optional<Lock<Policy>> heirs_lock_;
    std::optional<std::future<Outcome>> heir_;
    std::promise<void> ready_;
    std::ostringstream text_;
};

std::vector<Silence> silences_of(const Call& call) {
    std::vector<Silence> all;
    const bool unknown = call.scene == Scene::free || call.scene == Scene::theirs;
    for (const Way way : {Way::replies, Way::both}) {
        if (unknown) all.push_back({0, way, false});
        for (int answers = 0; answers <= 4; ++answers) all.push_back({answers, way, true});
    }
    return all;
}

/// Whether the call waits for anything at all with such a lock.
template <class Policy>
bool makes_sense(const Call& call) {
    const bool waits =
        std::string{call.name}.find("lock") == 0 || std::string{call.name}.find("acquire") == 0 ||
        std::string{call.name}.find("guard") == 0 || std::string{call.name}.find("try_") == 0;
    const bool nests = call.scene == Scene::nested || (call.scene == Scene::mine && waits);
    return Policy::reentrant || !nests;
}

/// Runs `tasks`, a number of them at a time.
void run_all(std::vector<std::function<void()>> tasks) {
    constexpr std::size_t at_once = 72;
    std::atomic<std::size_t> next{0};
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < std::min(at_once, tasks.size()); ++i) {
        threads.emplace_back([&] {
            for (std::size_t mine = next++; mine < tasks.size(); mine = next++) tasks[mine]();
        });
    }
}

class SilentServer : public testing::TestWithParam<Call> {
protected:
    template <class Policy>
    void add(const char* policy) {
        if (!makes_sense<Policy>(GetParam())) return;
        for (const Silence& silence : silences_of(GetParam())) {
            const std::string name = "job " + std::to_string(tasks_.size());
            tasks_.push_back([this, policy, silence, name] {
                const auto attempt = [&](const std::string& job) {
                    return Attempt<Policy>{server_, GetParam(), silence, job}.run();
                };
                const std::string words = complaints_of(attempt, name);
                if (words.empty()) return;
                const std::lock_guard lock{mutex_};
                ADD_FAILURE() << policy << '\n' << words;
            });
        }
    }

    void run() { run_all(std::move(tasks_)); }

private:
    RedisServer server_;
    std::mutex mutex_;
    std::vector<std::function<void()>> tasks_;
};

INSTANTIATE_TEST_SUITE_P(Calls, SilentServer, testing::ValuesIn(all_calls()), [](const auto& one) {
    return std::string{one.param.name} + "_" + name_of(one.param.scene) + "_" +
           name_of(one.param.end);
});

TEST_P(SilentServer, every_call_ends_by_its_deadline) {
    add<Simple>("Simple");
    add<Watchdog<Reentrant>>("Watchdog<Reentrant>");
#ifndef REDLATCH_TEST_SANITIZED
    add<Reentrant>("Reentrant");
    add<Watchdog<Simple>>("Watchdog<Simple>");
    add<Fenced<Simple>>("Fenced<Simple>");
    add<Fenced<Reentrant>>("Fenced<Reentrant>");
#endif
    run();
}

// ------------------------------------ nested, handed over, shared, counted, several at once

constexpr milliseconds until_stop{50};
constexpr milliseconds stop_bound{50};
constexpr int many = 60;  // permits, or names of a set: a command's time for each would be noticed
static_assert(many * patience > generous_slack + client_bound);

/// What the newer calls are made on, each kind with names of its own, and what they need.
struct Family {
    /// The server falls silent for `client`, and for nobody else.
    Family(const std::string& uri, const std::string& uri_of_others, const std::string& job)
        : client{std::make_unique<Client>(options_for(uri, patience))},
          others{options_for(uri_of_others, generous_slack)},
          nested{*client, job + " nested"},
          plain{*client, job + " plain"},
          others_plain{others, job + " plain"},
          config{*client, job + " config"},
          others_config{others, job + " config"},
          gpus{std::in_place, *client, job + " gpus", many},
          others_gpus{others, job + " gpus", many},
          others_member{others, job + " 5"},
          name{job} {}

    void make_set() {
        std::vector<std::string> names;
        for (int i = 0; i < many; ++i) names.push_back(name + ' ' + std::to_string(i));
        set.emplace(*client, names);
    }

    std::unique_ptr<Client> client;
    Client others;
    Lock<Reentrant> nested;
    Lock<Simple> plain;
    Lock<Simple> others_plain;
    Lock<Watchdog<Shared>> config;
    Lock<Watchdog<Shared>> others_config;
    std::optional<Semaphore<>> gpus;
    Semaphore<> others_gpus;
    std::optional<LockSet<>> set;
    Lock<> others_member;
    std::string name;

    std::optional<Ticket> ticket;
    std::optional<Held> others_held;
    std::optional<Held> held;
    std::optional<Held> inner;
    std::optional<HeldSet> held_set;
};

/// How one of them is made, and what has to be there before.
struct FamilyCall {
    std::string name;
    milliseconds bound;
    std::function<void(Family&)> prepare;
    std::function<Outcome(Family&)> make;
    End end = End::none;
};

/// Keeps what it has got until the attempt is over.
template <class T>
Outcome outcome_of(Result<T> result, std::optional<T>& kept) {
    if (!result) return result.error().code;
    kept = *std::move(result);
    return {};
}

/// `acquire` gets the token that ends it.
template <class Acquire>
Outcome outcome_when_stopped(Acquire acquire) {
    std::stop_source stop;
    const std::jthread stops{[&] {
        std::this_thread::sleep_for(until_stop);
        stop.request_stop();
    }};
    return outcome_of(acquire(stop.get_token()));
}

void nothing(Family&) {}

std::vector<FamilyCall> calls_on_own_locks() {
    const auto nests = [](Family& at) { at.held = at.nested.acquire().value(); };
    const auto holds = [](Family& at) { at.held = at.plain.acquire().value(); };
    const auto another_holds = [](Family& at) {
        at.others_held = at.others_plain.acquire().value();
    };
    const auto another_gave_it_away = [](Family& at) {
        at.ticket = at.others_plain.acquire().value().detach().value();
    };
    return {
        {"nest", patience, nests, [](Family& at) { return outcome_of(at.held->nest(), at.inner); }},
        {"detach", patience, holds, [](Family& at) { return outcome_of(at.held->detach()); }},
        {"adopt", patience, another_gave_it_away,
         [](Family& at) { return outcome_of(at.plain.adopt(*at.ticket), at.held); }},
        {"force_unlock of an owner", patience, another_holds,
         [](Family& at) { return outcome_of(at.plain.force_unlock(at.others_held->token())); }},
        {"force_unlock of nobody", patience, nothing,
         [](Family& at) { return outcome_of(at.plain.force_unlock("nobody")); }},
    };
}

std::vector<FamilyCall> calls_on_shared_locks() {
    const auto acquires = [](Family& at) {
        return outcome_of(at.config.acquire_shared({.wait = wait_of_tries}), at.held);
    };
    const auto acquires_until_stopped = [](Family& at) {
        return outcome_when_stopped(
            [&](std::stop_token stop) { return at.config.acquire_shared({.stop = stop}); });
    };
    const auto tries_once = [](Family& at) {
        return outcome_of_throwing([&] { static_cast<void>(at.config.try_lock_shared()); });
    };
    const auto tries = [](Family& at) {
        return outcome_of_throwing(
            [&] { static_cast<void>(at.config.try_lock_shared_for(wait_of_tries)); });
    };
    const auto another_reads = [](Family& at) {
        at.others_held = at.others_config.acquire_shared().value();
    };
    const auto another_writes = [](Family& at) {
        at.others_held = at.others_config.acquire().value();
    };
    const auto another_thread_reads = [](Family& at) {
        in_background([&at] { at.inner = at.config.acquire_shared().value(); }).get();
    };
    const auto reads = [](Family& at) { at.config.lock_shared(); };
    const auto writes = [](Family& at) { at.config.lock(); };
    const auto holds_to_read = [](Family& at) { at.held = at.config.acquire_shared().value(); };
    const auto holds_to_write = [](Family& at) { at.held = at.config.acquire().value(); };
    std::vector<FamilyCall> calls{
        {"release_shared", patience, reads,
         [](Family& at) { return outcome_of(at.config.release_shared()); }},
        {"unlock_shared", patience, reads,
         [](Family& at) { return outcome_of_throwing([&] { at.config.unlock_shared(); }); }},
        {"release of a reader", patience, holds_to_read,
         [](Family& at) { return outcome_of(at.held->release()); }},
        {"extend of a reader", patience, holds_to_read,
         [](Family& at) { return outcome_of(at.held->extend(40s)); }},
        {"downgrade", patience, writes,
         [](Family& at) { return outcome_of(at.config.downgrade()); }},
        {"downgrade of a Held", patience, holds_to_write,
         [](Family& at) { return outcome_of(at.held->downgrade()); }},
        {"acquire_shared until it is stopped", until_stop + stop_bound, another_writes,
         acquires_until_stopped, End::stop},
    };
    const std::vector<std::pair<std::string, std::function<void(Family&)>>> scenes{
        {" alone", nothing},
        {" beside a reader", another_reads},
        {" behind a writer", another_writes},
        {" with another thread", another_thread_reads},
        {" nested", reads},
    };
    for (const auto& [scene, prepare] : scenes) {
        calls.push_back({"acquire_shared" + scene, wait_of_tries, prepare, acquires});
        calls.push_back({"try_lock_shared" + scene, patience, prepare, tries_once});
        calls.push_back({"try_lock_shared_for" + scene, wait_of_tries, prepare, tries});
    }
    return calls;
}

std::vector<FamilyCall> calls_on_semaphores() {
    const auto takes = [](Family& at) {
        return outcome_of(at.gpus->take({.permits = 2, .wait = wait_of_tries}), at.held);
    };
    const auto takes_until_stopped = [](Family& at) {
        return outcome_when_stopped(
            [&](std::stop_token stop) { return at.gpus->take({.permits = 2, .stop = stop}); });
    };
    const auto tries = [](Family& at) {
        return outcome_of_throwing(
            [&] { static_cast<void>(at.gpus->try_acquire_for(wait_of_tries)); });
    };
    const auto took = [](Family& at) { at.held = at.gpus->take({.permits = 2}).value(); };
    const auto acquired = [](Family& at) {
        for (int i = 0; i < many; ++i) at.gpus->acquire();
    };
    const auto another_took_all = [](Family& at) {
        at.others_held = at.others_gpus.take({.permits = many}).value();
    };
    return {
        {"take", wait_of_tries, nothing, takes},
        {"take behind another", wait_of_tries, another_took_all, takes},
        {"take until it is stopped", until_stop + stop_bound, another_took_all, takes_until_stopped,
         End::stop},
        {"try_acquire_for", wait_of_tries, nothing, tries},
        {"try_acquire_for behind another", wait_of_tries, another_took_all, tries},
        {"release of what was taken", patience, took,
         [](Family& at) { return outcome_of(at.held->release()); }},
        {"extend of what was taken", patience, took,
         [](Family& at) { return outcome_of(at.held->extend(40s)); }},
        {"release", patience, acquired, [](Family& at) { return outcome_of(at.gpus->release()); }},
        {"release of all", patience, acquired,
         [](Family& at) { return outcome_of(at.gpus->release(many)); }},
        {"the destructor", patience, acquired,
         [](Family& at) { return outcome_of_throwing([&] { at.gpus.reset(); }); }},
        {"set_permits", patience, nothing,
         [](Family& at) { return outcome_of(at.gpus->set_permits(4)); }},
        {"inspect", patience, another_took_all,
         [](Family& at) { return outcome_of(at.gpus->inspect()); }},
        {"force_release", patience, another_took_all,
         [](Family& at) { return outcome_of(at.gpus->force_release(at.others_held->token())); }},
    };
}

std::vector<FamilyCall> calls_on_sets() {
    const auto acquires = [](Family& at) {
        return outcome_of(at.set->acquire({.wait = wait_of_tries}), at.held_set);
    };
    const auto acquires_until_stopped = [](Family& at) {
        return outcome_when_stopped(
            [&](std::stop_token stop) { return at.set->acquire({.stop = stop}); });
    };
    const auto a_set = [](Family& at) { at.make_set(); };
    const auto another_has_one = [](Family& at) {
        at.make_set();
        at.others_held = at.others_member.acquire().value();
    };
    const auto holds = [](Family& at) {
        at.make_set();
        at.held_set = at.set->acquire().value();
    };
    const auto locks = [](Family& at) {
        at.make_set();
        at.set->lock();
    };
    return {
        {"acquire", wait_of_tries, a_set, acquires},
        {"acquire behind another", wait_of_tries, another_has_one, acquires},
        {"acquire until it is stopped", until_stop + stop_bound, another_has_one,
         acquires_until_stopped, End::stop},
        {"extend", patience, holds,
         [](Family& at) { return outcome_of(at.held_set->extend(40s)); }},
        {"release", patience, holds, [](Family& at) { return outcome_of(at.held_set->release()); }},
        {"the destructor of a HeldSet", patience, holds,
         [](Family& at) { return outcome_of_throwing([&] { at.held_set.reset(); }); }},
        {"unlock", patience, locks,
         [](Family& at) { return outcome_of_throwing([&] { at.set->unlock(); }); }},
        {"the destructor of a LockSet", patience, locks,
         [](Family& at) { return outcome_of_throwing([&] { at.set.reset(); }); }},
    };
}

bool is_expected(Errc code, const FamilyCall& call) {
    if (call.end == End::stop) return code == Errc::cancelled;
    return code == Errc::unavailable || code == Errc::unclear || code == Errc::timed_out;
}

/// One of these calls, under one silence. Says what was not as it should be.
std::string attempt(const std::string& uri, const FamilyCall& call, const Silence& silence,
                    const std::string& name) {
    Proxy proxy{uri};
    Family at{proxy.uri(), uri, name};
    std::promise<void> ready;
    auto done = in_background([&] {
        try {
            prepared([&] {
                if (!eventually([&] { return at.client->ping().has_value(); })) {
                    throw std::runtime_error{"no server"};
                }
                call.prepare(at);
            });
        } catch (...) {
            ready.set_exception(std::current_exception());
            throw;
        }
        proxy.black_hole_after(silence.answers, silence.way);
        const Stopwatch watch;
        ready.set_value();
        const Outcome outcome = call.make(at);
        return std::pair{outcome, watch.elapsed()};
    });
    ready.get_future().get();
    std::ostringstream text;
    const auto complain = [&](const std::string& words) {
        text << "  " << silence << ": " << words << '\n';
    };
    if (!finishes(done, call.bound + generous_slack)) {
        complain("did not come back");
        proxy.pass();
    }
    const auto [outcome, took] = done.get();
    if (took > call.bound + generous_slack) complain("came back late");
    if (outcome && !is_expected(*outcome, call)) {
        complain("failed with: " + make_error_code(*outcome).message());
    }
    const Stopwatch watch;
    at.client.reset();
    if (watch.elapsed() > client_bound + generous_slack) complain("~Client came back late");
    return text.str();
}

struct Kind {
    const char* name;
    std::vector<FamilyCall> (*calls)();
};

void PrintTo(const Kind& kind, std::ostream* out) {
    *out << kind.name;
}

class SilentServerForFamily : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Calls, SilentServerForFamily,
                         testing::Values(Kind{"own_locks", calls_on_own_locks},
                                         Kind{"shared_locks", calls_on_shared_locks},
                                         Kind{"semaphores", calls_on_semaphores},
                                         Kind{"sets", calls_on_sets}),
                         [](const auto& one) { return std::string{one.param.name}; });

TEST_P(SilentServerForFamily, every_call_ends_by_its_deadline) {
    RedisServer server;
    // Composes the scripts, which each of the threads would do else.
    const Family first{server.uri(), server.uri(), "first"};
    std::mutex mutex;
    std::vector<std::function<void()>> tasks;
    for (const FamilyCall& call : GetParam().calls()) {
        for (const Way way : {Way::replies, Way::both}) {
            for (const int answers : {0, 1, 2, 3, 4, many / 2}) {
                const Silence silence{answers, way, true};
                const std::string name = "job " + std::to_string(tasks.size());
                tasks.emplace_back([&, call, silence, name] {
                    const auto once = [&](const std::string& job) {
                        return attempt(server.uri(), call, silence, job);
                    };
                    const std::string words = complaints_of(once, name);
                    if (words.empty()) return;
                    const std::lock_guard lock{mutex};
                    ADD_FAILURE() << call.name << '\n' << words;
                });
            }
        }
    }
    run_all(std::move(tasks));
}

}  // namespace
}  // namespace redlatch::test
