#pragma once

#include <redlatch/core/attempts.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/describe_owner.hpp>
#include <redlatch/core/loss.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/net/completion_batch.hpp>
#include <redlatch/observer.hpp>
#include <redlatch/policy/lua.hpp>
#include <redlatch/service/awaited_order.hpp>
#include <redlatch/service/client_setup.hpp>
#include <redlatch/service/completion_threads.hpp>
#include <redlatch/service/contention.hpp>
#include <redlatch/service/engine.hpp>
#include <redlatch/service/eviction_check.hpp>
#include <redlatch/service/lock_table_monitor.hpp>
#include <redlatch/service/notifier.hpp>
#include <redlatch/service/observer_events.hpp>
#include <redlatch/service/open_calls.hpp>
#include <redlatch/service/renewal_thread.hpp>
#include <redlatch/service/reply_drainer.hpp>
#include <redlatch/service/sentinel_watch.hpp>
#include <redlatch/service/subscriptions.hpp>
#include <redlatch/service/token_source.hpp>
#include <redlatch/service/topology_builder.hpp>
#include <redlatch/topology/sentinel.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What a client is in one process: its connections, its locks and its threads. A forked child gets
/// one of its own and never touches its parent's.
class Session {
public:
    explicit Session(const ClientSetup& setup)
        : command_timeout_(setup.options.command_timeout),
          longest_lease_(setup.longest_lease()),
          key_space_(setup.options.key_space),
          tokens_(setup.options.client_name, key_space_),
          default_executors_{setup.completions != nullptr ? setup.completions : completion_threads_,
                             completion_threads_},
          events_(setup.options.observer, notifier_),
          log_in_(setup.options.credentials ? std::make_shared<LogIn>(setup.options.credentials)
                                            : nullptr),
          topology_(make_topology(setup)),
          shares_links_(setup.options.connections == Connections::shared &&
                        !has_several_masters()) {}
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() {
        close();
        topology_->close();  // again: services that go first may have asked for something since
    }

    std::chrono::milliseconds command_timeout() const noexcept { return command_timeout_; }

    std::chrono::milliseconds longest_lease() const noexcept { return longest_lease_; }

    /// How long after a try was given up a script of its does nothing any more, if it arrives only
    /// then: the time for the last release of its token.
    Clock::duration late_window() const noexcept { return command_timeout_ + late_margin; }

    /// Whether several masters decide. Then nobody can be given a lock by another's release: a waiter has to
    /// ask.
    bool has_several_masters() const noexcept { return topology_->voters() > 1; }

    OpenCalls& open_calls() noexcept { return open_calls_; }

    Node& master_of(std::string_view key) { return topology_->master_of(key); }

    /// Runs a call where its key is; see `Topology::run_on_masters`.
    Expected<Reply, Fault> run(const Call& call, const Call& again, const Limit& limit,
                               QuorumProgress& progress) {
        if (goes_over_link(call)) {
            if (auto reply = AwaitedOrder::run(engine_, call, again, limit, progress)) {
                return *std::move(reply);
            }
        }
        return topology_->run_on_masters(call, again, limit, progress);
    }
    Expected<Reply, Fault> run(const Call& call, const Limit& limit) {
        QuorumProgress progress;
        return run(call, call, limit, progress);
    }

    /// A command for whose answer nobody waits has failed at `node`. Where that says that another server has
    /// its key, the fault becomes one that passes, and the next command goes there. Does not block.
    void note_redirection(Node& node, Fault& fault) {
        if (!topology_->redirects() || !redirection_of(fault)) return;
        topology_->failed(node, fault, Limit{TimePoint::min()});
        disagree(fault);
    }

    /// Whether blocking calls go over the links that asynchronous ones go over.
    bool shares_links() const noexcept { return shares_links_; }

    /// Where operations complete that no executor is given for.
    const DefaultExecutors& default_executors() const noexcept { return default_executors_; }

    bool is_closed() const noexcept { return closed_; }

    TokenSource& tokens() noexcept { return tokens_; }
    ObserverEvents& events() noexcept { return events_; }
    LockTableMonitor& locks() noexcept { return locks_; }
    RenewalThread& renewal() noexcept { return renewal_; }
    Engine& engine() noexcept { return engine_; }
    ReplyDrainer& reply_drainer() noexcept { return reply_drainer_; }
    Contention& contention() noexcept { return contention_; }

    /// What the master for `key` tells this client.
    Subscription& subscription(std::string_view key) { return subscriptions_.of(master_of(key)); }

    /// Who holds that lock under that token, with this client; null for nobody.
    std::shared_ptr<Hold> holder_of(std::string_view key, std::string_view token) {
        return tokens_.made(token) ? locks_.with_token(key, token) : nullptr;
    }

    /// Tells of the first owner whose client does not know our queue.
    void note_owner(const std::string& key, std::string_view owner) {
        if (!tokens_.is_of_other_key_space(owner) || told_key_space_.exchange(true)) return;
        events_.warning(
            {.node = has_several_masters() ? "" : master_of(key).name(),
             .message = describe_owner(owner) + " has the lock '" + printable(key) +
                        "' with another ClientOptions::key_space: who waits here polls, and "
                        "their fencing tokens and ours have no order"});
    }

    /// How many asynchronous waiters have had no answer of use to their last try.
    std::size_t unanswered() const noexcept { return unanswered_; }
    void count_unanswered(bool one_more) noexcept { one_more ? ++unanswered_ : --unanswered_; }

    std::uint64_t new_acquisition_id() noexcept {
        return acquisition_ids_.fetch_add(1, std::memory_order_relaxed) + 1;
    }

    /// Destroys `object` on a thread that tells of losses, also after `close`: its end may wait for a callback that
    /// hears of one. Without memory for that, destroys it on this thread.
    void destroy_later(std::shared_ptr<void> object) noexcept {
        try {
            notifier_.post_loss([object = std::move(object)] {});
        } catch (const std::bad_alloc&) {
            return;
        }
    }

    /// From now on tells of a loss by the time validity ends, whatever the server does.
    void watch_clock(const std::shared_ptr<Hold>& hold) {
        if (hold->watched_by_notifier.exchange(true)) return notifier_.watch_on();
        try {
            notifier_.watch(hold);
        } catch (const std::bad_alloc&) {
            hold->watched_by_notifier = false;
            throw;
        }
    }

    /// Somebody wants to be told of a loss.
    void prepare_for_loss() { notifier_.prepare_for_loss(); }

    /// The services that watch over a hold forget it: it is about to end.
    void dismiss(Hold& hold) {
        if (hold.renewed_by_watchdog) renewal_.dismiss(hold);
        if (hold.watched_by_notifier) notifier_.unwatch(hold);
    }

    /// A hold is over without a release: nothing here goes on as if it were ours, and all that want to know
    /// are told. See `lose`, and for what follows.
    void declare_lost(const std::shared_ptr<Hold>& hold,
                      ServerKeeps server = ServerKeeps::nothing) {
        lose(*this, hold, server);
    }
    /// The server has removed that token at this client's wish. Returns the hold that goes by it, as `holder_of` does.
    /// Where none does yet, the acquisition that ends with the token calls `lose_removed`.
    std::shared_ptr<Hold> removed(std::string_view key, std::string_view token) {
        return tokens_.made(token) ? locks_.removed(key, token) : nullptr;
    }
    /// Declares that hold lost, and releases its token: a late command may have taken the lock for it once more.
    void lose_removed(const std::shared_ptr<Hold>& hold) {
        declare_lost(hold, ServerKeeps::removed);
        clean_up(hold, {.at_once = true});
    }

    std::vector<std::shared_ptr<Hold>> close_claim_of(const Hold& hold) {
        return locks_.close_claim_of(hold);
    }
    void leave(Hold& hold) {
        locks_.leave_claim(hold);
        dismiss(hold);
    }
    void tell_lost(const std::shared_ptr<Hold>& hold) {
        locks_.lost(hold);
        if (hold->loss_is_awaited()) notifier_.post_loss([hold] { hold->tell_lost(); });
        const auto held_for = Clock::now() - hold->taken_at();
        events_.hold_ended(hold, held_for);
        if (hold->is_delivered()) events_.lost(hold->key(), held_for);
    }

    void declare_lost(const std::vector<std::shared_ptr<Hold>>& holds) {
        for (const auto& hold : holds) {
            if (hold->in(Phase::held)) declare_lost(hold);
        }
    }

    /// Releases what a hold's token may have at the server, in the background: the one way there is.
    void clean_up(const std::shared_ptr<Hold>& hold, CleanUp what) {
        if (!what.needed() || !locks_.may_clean_up(*hold)) return;
        if (renewal_.clean_up(hold, what)) return;
        if (is_released_when_closed(*hold, what)) release_now(*hold);
    }

    /// Nobody uses a place in the queue any more.
    void clean_up(QueuePlace place) {
        constexpr bool may_have = true;
        const CleanUp what = after_abandoned_try(may_have, place.unclear_try);
        const auto hold =
            std::make_shared<Hold>(std::move(place.terms), std::move(place.token), LockOwner{});
        hold->open_tries.longest = place.tries.longest;
        clean_up(hold, what);
    }

    /// The hold of that token if its clean-up is to come or under way; else null.
    std::shared_ptr<Hold> cleaned_up(std::string_view token) { return renewal_.cleaned_up(token); }

    /// Tries once, for as long as the end of the client waits for calls. Not over a link: the engine's thread
    /// may be the one that calls.
    void release_now(const Hold& hold) {
        const Call call = release_call(hold);
        QuorumProgress progress;
        const TimePoint soon = saturating_add(Clock::now(), last_answer_slack);
        const Limit limit{std::max(soon, calls_end_.load())};
        static_cast<void>(topology_->run_on_masters(call, call, limit, progress));
    }

    /// Fires `lost()` of everything held, releases it, and ends all threads. Waiting calls return with
    /// `Errc::cancelled`. Takes at most three command timeouts: one for what the renewal is
    /// just doing (for a subscription that is just being made, and for blocking calls that get a lock
    /// just now), one for the releases, one for callbacks that run; and one more where releases were
    /// only sent.
    void close() {
        const TimePoint calls_end = saturating_add(Clock::now(), command_timeout_);
        if (closed_.exchange(true)) return;
        calls_end_ = calls_end;
        LockTable::Remains remains = locks_.close();
        for (const auto& hold : remains.holds) declare_lost(hold, ServerKeeps::lock);
        for (QueuePlace& place : remains.places) clean_up(std::move(place));
        engine_.close();
        if (sentinel_watch_ != nullptr) sentinel_watch_->begin_to_close();
        subscriptions_.begin_to_close();
        reply_drainer_.close();  // before those that its answers may give something to do
        renewal_.close();
        open_calls_.wait_for_end(calls_end);
        topology_->close();
        subscriptions_.close();
        if (sentinel_watch_ != nullptr) sentinel_watch_->close();
        completion_threads_->close();
        notifier_.close(command_timeout_);
    }

private:
    /// Once it is closed, the engine's own thread may be the one that asks. Scripts of the user's own may be wrong,
    /// and then end what goes over the same connection.
    bool goes_over_link(const Call& call) {
        return shares_links_ && !closed_ &&
               (!call.is_script() || lua::is_of_library(*call.script())) && engine_.start();
    }

    std::unique_ptr<Topology> make_topology(const ClientSetup& setup) {
        const ClientOptions& options = setup.options;
        TopologyBuilder builder{
            setup,
            {tokens_.client_name(), options.connect_timeout, options.tls, examination(), &resolver_,
             log_in_},
            {.reconnected = [this](const std::string& node) { events_.reconnected(node); },
             .keys_denied = [this](const std::string& node) { tell_unordered(node); },
             .master_moved =
                 [this] {
                     subscriptions_.reconnect();
                     engine_.master_moved();
                 },
             .node_left =
                 [this](Node& node) {
                     subscriptions_.reconnect(node);
                     renewal_.map_changed();
                     engine_.map_changed();
                 },
             .owes_answer = [this](Node& node) { reply_drainer_.watch(node); },
             .sentinels_found = [this] { sentinel_watch_->start(); }}};
        auto topology = builder.build();
        sentinels_ = builder.sentinels();
        return topology;
    }

    /// Hands a grant to the waiter that it is for. Where nobody here goes by its token, that waiter has left, and a
    /// command of its was carried out late: the token is released.
    ///
    /// In a Cluster every node passes messages on, so a client hears a grant from each node that it listens
    /// to. Only that from the lock's master is believed. Where it is learned meanwhile that a slot has moved,
    /// none may come from the node that is taken for the master then: so any other one has the waiter ask.
    void hear(const Node& node, const Grant& grant) {
        // The end of the client releases each place anyway, and has one time limit for all of them.
        if (closed_) return;
        const bool is_hint = &master_of(grant.key) != &node;
        if (locks_.deliver(grant, is_hint)) return;
        const HoldTerms terms{.keys = std::make_shared<const LockKeys>(grant.key, key_space_),
                              .traits = traits_of(grant),
                              .lease = grant.ttl,
                              .drift = {},
                              .lock_delay = {},
                              .max_hold = {},
                              .claim = {.weight = grant.weight}};
        release_unowned(*this, terms, {grant.token});
    }

    /// What is needed to release what was granted.
    static PolicyTraits traits_of(const Grant& grant) {
        PolicyTraits traits{.key_type = KeyType::string,
                            .reentrant = false,
                            .watched = false,
                            .fenced = false,
                            .scripts = nullptr};
        if (grant.weight != 0) {
            traits.key_type = KeyType::sorted_set;
            traits.shared = grant.kind == "shared";
            traits.scripts = traits.shared ? &lua::on_shared_claims() : &lua::on_permits();
        } else if (grant.key_type == 'h') {
            traits.key_type = KeyType::hash;
            traits.scripts = &lua::on_hash();
        } else {
            traits.scripts = &lua::on_string();
        }
        return traits;
    }

    /// Only for somebody who will be told.
    Examine examination() {
        if (!events_.wanted()) return {};
        return [this](Connection& connection, const Limit& limit) {
            return eviction_.look_at(connection, limit);
        };
    }

    void tell_unheard(const std::string& sentinel) {
        events_.warning({.node = sentinel,
                         .message = "a change of the master is heard of up to a second late: the "
                                    "ACL has to allow +subscribe and &+switch-master"});
    }

    void tell_unordered(const std::string& node) {
        events_.warning(
            {.node = node,
             .message = "waiters poll, and get locks in no order: the ACL has to allow " +
                        LockKeys::companion_patterns(key_space_) +
                        " and the commands of docs/deployment.md"});
    }

    const std::chrono::milliseconds command_timeout_;
    const std::chrono::milliseconds longest_lease_;
    const std::string key_space_;
    TokenSource tokens_;
    const std::shared_ptr<CompletionThreads> completion_threads_ =
        std::make_shared<CompletionThreads>();
    const DefaultExecutors default_executors_;
    std::atomic<std::uint64_t> acquisition_ids_{0};
    std::atomic<std::size_t> unanswered_{0};
    std::atomic<bool> closed_{false};
    std::atomic<TimePoint> calls_end_{TimePoint::min()};  // once it closes
    std::atomic<bool> told_key_space_{false};

    Contention contention_;
    OpenCalls open_calls_;

    // Each may use those above it.
    LockTableMonitor locks_;
    Notifier notifier_{[this](const std::shared_ptr<Hold>& hold) { declare_lost(hold); }};
    ObserverEvents events_;
    EvictionCheck eviction_{
        [this](Observer::Warning warning) { events_.warning(std::move(warning)); }};
    Resolver resolver_;
    const std::shared_ptr<LogIn> log_in_;  // null where the URIs say how to log in
    SentinelDialer* sentinels_ = nullptr;  // of the topology; null where there are none
    const std::unique_ptr<Topology> topology_;
    const bool shares_links_;
    RenewalThread renewal_{*topology_,
                           {.lost = [this](const std::shared_ptr<Hold>& hold,
                                           ServerKeeps server) { declare_lost(hold, server); },
                            .renewed = [this](const Hold& hold) { events_.renewed(hold); },
                            .failed = [this](const Error& error) { events_.error(error); }},
                           {.several_masters = has_several_masters(),
                            .command_timeout = command_timeout_,
                            .late_window = late_window()}};
    Subscriptions subscriptions_{
        key_space_ + "client:" + tokens_.id(),
        {.granted = [this](Node& node, const Grant& grant) { hear(node, grant); },
         .listening = [this] { locks_.recheck_all(); },
         .is_master = [this](const Node& node) { return topology_->is_master(node); }}};
    std::unique_ptr<SentinelWatch> sentinel_watch_{
        sentinels_ == nullptr
            ? nullptr
            : std::make_unique<SentinelWatch>(
                  *sentinels_, command_timeout_,
                  [this](const std::string& sentinel) { tell_unheard(sentinel); })};
    ReplyDrainer reply_drainer_{command_timeout_};
    Engine engine_{*topology_, command_timeout_};
};

}  // namespace redlatch::inline v0::detail
