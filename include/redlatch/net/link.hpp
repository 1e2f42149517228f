#pragma once

#include <redlatch/core/command_queue.hpp>
#include <redlatch/core/quorum_call.hpp>
#include <redlatch/net/exchange.hpp>
#include <redlatch/net/node.hpp>

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// A command for a link. Its owner keeps it until it has `ended`.
class LinkCommand : public QueuedCommand {
public:
    /// What is sent. `again`: an earlier sending may have been carried out.
    virtual Call call(bool again) const = 0;

    /// How long its answer is waited for.
    virtual TimePoint answer_by() const noexcept = 0;

    /// It is about to be written over that connection, maybe once more. False takes it out again.
    virtual bool admit(const Connection& connection, TimePoint now) {
        static_cast<void>(connection);
        static_cast<void>(now);
        return true;
    }

    /// Told once: the answer, or why there is none. The link does not touch it any more, and may be given
    /// other commands.
    virtual void ended(Expected<Reply, Fault>&& reply, CommandStep::Next next) noexcept = 0;

    /// An ASKING goes in front: the Cluster is moving its key's slot.
    bool asking = false;

protected:
    virtual ~LinkCommand() = default;

private:
    friend class Link;
    const Script* script_ = nullptr;
    ReplyShape shape_ = ReplyShape::any;
    bool can_omit_keys_ = false;
    std::optional<Reply> taken_;  // while replicas are waited for
    unsigned connection_ = 0;     // that it has last been prepared for
};

/// The way to one server that many commands share: a `CommandQueue`, and the connection that there is just
/// now. Never blocks. One thread.
///
/// A link for locks that so many `replicas` have to acknowledge writes the commands there are with one WAIT
/// behind them, and nothing more until that is answered.
///
/// Where a connection fails, written commands get no answer over it. Unwritten ones wait for the next one.
class Link {
public:
    Link(Node& node, const CommandQueue::Limits& limits, Replicas replicas = Replicas::none())
        : node_(&node), queue_(limits), replicas_(replicas) {}

    Node& node() const noexcept { return *node_; }
    bool is_connected() const noexcept { return connection_.has_value(); }

    /// Of its connection, or the one before.
    unsigned number() const noexcept { return number_; }
    bool has_unwritten() const noexcept { return queue_.has_unwritten(); }

    /// What `poll` waits for before there is something to read, or room to write. Connected only.
    pollfd awaits() const noexcept { return connection_->more_to_come(written_ < out_.size()); }

    /// When the connection is given up, unless an answer comes.
    TimePoint gone_at() const noexcept { return queue_.gone_at(); }

    void connected(Connection connection) {
        connection_.emplace(std::move(connection));
        trouble_.reset();
        ++number_;
    }

    /// An attempt to connect that began then has failed, and so have the commands that were unwritten at that
    /// time.
    void not_connected(const Fault& fault, TimePoint begun = TimePoint::max()) {
        trouble_ = fault;
        queue_.not_connected(begun);
        end_failed(fault);
    }

    /// `token` is borrowed. A release takes out what is unwritten of its token.
    void add(LinkCommand& command, CommandRank rank, std::string_view token) {
        command.connection_ = 0;
        const TimePoint now = connection_ ? TimePoint::min() : Clock::now();
        if (wanted_since_ == TimePoint::min()) wanted_since_ = Clock::now();
        queue_.add(command, rank, token, now);
    }

    /// The same where the release goes over another link.
    void withdraw(std::string_view token) noexcept { queue_.withdraw(token); }

    /// Nobody waits for it any more. False where it was not carried out, and never will be: then it has
    /// ended without a word.
    bool abandon(LinkCommand& command) noexcept { return queue_.abandon(command); }

    /// Whether it waits for its turn to be written, and others get their answers meanwhile.
    bool is_behind_others(const LinkCommand& command, TimePoint now) const noexcept {
        return connection_ && command.is_unwritten() && queue_.gets_answers(now);
    }

    /// Its time is over. Where it only waits for replicas, it has ended as acknowledged by none. Else false, also where
    /// it is written once more: an answer is due then.
    bool end_unacknowledged(LinkCommand& command) {
        if (!command.is_held()) return false;
        queue_.take_out(command);
        Reply taken = *std::exchange(command.taken_, std::nullopt);
        taken.replicas_wanted = replicas_ == Replicas::all()
                                    ? std::max<std::int64_t>(replicas_there_, 1)
                                    : std::int64_t{replicas_.count()};
        taken.replicas = 0;
        command.ended(std::move(taken), CommandStep::Next::deliver);
        return true;
    }

    /// Writes what the connection takes at once. Whether there is more to write at the next turn.
    bool write() {
        end_failed(unanswered_fault());  // what was withdrawn, or abandoned and will have no answer
        if (!connection_) return false;
        if (!node_->is_current(*connection_)) break_off(moved());
        if (!connection_) return false;
        if (written_ == out_.size()) encode();
        if (out_.empty()) return false;
        auto n = connection_->send_if_possible(std::string_view{out_}.substr(written_));
        if (!n) {
            break_off(std::move(n).error());
            return false;
        }
        written_ += *n;
        return written_ == out_.size() && !waits_for_replicas() &&
               queue_.next_to_write(0) != nullptr;
    }

    /// Takes the answers that have come.
    void read() {
        TimePoint now = TimePoint::min();  // when the last one was there
        while (connection_) {
            bool from_socket = false;
            auto reply = connection_->receive_if_there(from_socket);
            if (!reply && !connection_->alive()) return break_off(std::move(reply).error());
            if (reply && !*reply) return;
            if (!queue_.has_written()) return break_off(unexpected_reply());
            if (from_socket || now == TimePoint::min()) now = Clock::now();
            take(reply ? Expected<Reply, Fault>{**std::move(reply)}
                       : Unexpected{std::move(reply).error()},
                 now);
        }
    }

    /// Gives the connection up where no answer has come in time.
    void pass_time(TimePoint now) {
        if (!connection_ || now < gone_at()) return;
        const Fault fault = forget_connection(unanswered_fault());
        queue_.timed_out(now);
        end_failed(fault);
    }

    /// The connection is of no use any more.
    void break_off(Fault fault) {
        fault = forget_connection(std::move(fault));
        queue_.disconnected({.disconnected = fault.disconnected, .maybe_executed = true});
        end_failed(fault);
    }

    /// Closes the connection where nothing is under way. The next command makes a new one.
    void disconnect_if_idle() {
        if (queue_.has_unwritten() || queue_.has_written() || queue_.has_held()) return;
        drop_connection();
        queue_.disconnected({});
    }

    /// Whether there will be a connection, where there is none.
    ConnectStatus status() const {
        if (trouble_) return {ConnectStatus::Kind::doubtful, *trouble_};
        return {ConnectStatus::Kind::coming, {}, wanted_since_};
    }

    /// Why it broke last, once; nothing where it did not.
    std::optional<Fault> take_fault() { return std::exchange(fault_, std::nullopt); }

    /// A second descriptor of its socket, to be watched by `epoll`.
    Descriptor duplicate() const noexcept { return connection_->duplicate(); }

private:
    /// The fault, with the server's name.
    Fault forget_connection(Fault fault) {
        drop_connection();
        if (fault.error.node.empty()) fault.error.node = node_->name();
        node_->note(Expected<void, Fault>{Unexpected{fault}});
        fault_ = trouble_ = fault;
        return fault;
    }

    void drop_connection() {
        connection_.reset();
        out_.clear();
        written_ = 0;
        scripts_written_.clear();
    }

    /// A command of the link's own. Destroys itself, with its answer.
    class Own : public LinkCommand {
    public:
        Own() { command.leave(); }
        ~Own() override = default;
        TimePoint answer_by() const noexcept final { return TimePoint::max(); }
        void ended(Expected<Reply, Fault>&& reply, CommandStep::Next) noexcept final {
            const std::unique_ptr<Own> destroyed{this};
            answered(reply);
        }

    private:
        virtual void answered(const Expected<Reply, Fault>& reply) = 0;
    };

    using OwnPtr = std::unique_ptr<Own>;

    /// Stands in front of a command; the answer to that command tells whether it was allowed.
    class Asking final : public Own {
        Call call(bool) const override { return Call::plain({"ASKING"}); }
        void answered(const Expected<Reply, Fault>&) override {}
    };

    /// Asks how many replicas there are.
    class CountReplicas final : public Own {
    public:
        explicit CountReplicas(Link& its) : link_(&its) {}

    private:
        Call call(bool) const override { return Call::plain({"INFO", "replication"}); }
        void answered(const Expected<Reply, Fault>& reply) override { link_->counted(reply); }

        Link* link_;
    };

    /// Waits until so many of them have what was written before.
    class WaitForReplicas final : public Own {
    public:
        WaitForReplicas(Link& its, std::int64_t wanted, Clock::duration left)
            : link_(&its), wanted_(wanted), left_(left) {}

    private:
        Call call(bool) const override { return Call::wait_for_replicas(wanted_, left_); }
        void answered(const Expected<Reply, Fault>& reply) override {
            link_->acknowledged(reply, wanted_);
        }

        Link* link_;
        std::int64_t wanted_;
        Clock::duration left_;
    };

    static Fault moved() {
        Fault fault = io_fault("another server is the master");
        fault.disconnected = true;
        return fault;
    }

    static Fault released() {
        return {.error = make_error(Errc::cancelled, "the lock was released first"),
                .transient = false};
    }

    void encode() {
        out_.clear();
        written_ = 0;
        const TimePoint now = Clock::now();
        const bool for_replicas = replicas_ != Replicas::none();
        if (for_replicas && waits_for_replicas()) {
            if (!queue_.has_written()) encode_wait(replicas_there_, now);
            return;
        }
        answer_by_ = TimePoint::max();
        while (QueuedCommand* const next = queue_.next_to_write(out_.size())) {
            auto& command = static_cast<LinkCommand&>(*next);
            if (!command.admit(*connection_, now)) {
                queue_.take_out(command);
                continue;
            }
            if (command.asking) encode_own(OwnPtr{new Asking}, now);
            encode(command, now);
            answer_by_ = std::min(answer_by_, command.answer_by());
        }
        if (!for_replicas || out_.empty()) return;
        if (replicas_ == Replicas::all()) {
            encode_own(OwnPtr{new CountReplicas{*this}}, now);
        } else {
            encode_wait(replicas_.count(), now);
        }
    }

    bool waits_for_replicas() const noexcept {
        return replicas_ != Replicas::none() && (queue_.has_written() || queue_.has_held());
    }

    void encode_own(OwnPtr own, TimePoint now) {
        Own& command = *own.release();
        queue_.add(command, CommandRank::usual, {});
        queue_.written(command, now);
        static_cast<const LinkCommand&>(command).call(false).append_to(out_);
    }

    void encode_wait(std::int64_t wanted, TimePoint now) {
        const TimePoint by = std::min(answer_by_, saturating_add(now, node_->command_timeout()));
        encode_own(OwnPtr{new WaitForReplicas{*this, wanted, saturating_sub(by, now)}}, now);
    }

    void counted(const Expected<Reply, Fault>& reply) {
        replicas_there_ = reply ? replicas_in(reply->view()) : 0;
        if (!reply || replicas_there_ == 0) acknowledged(reply, 0);
    }

    /// So many replicas have all that was taken, or nobody knows how many.
    void acknowledged(const Expected<Reply, Fault>& reply, std::int64_t wanted) {
        while (QueuedCommand* const held = queue_.take_held()) {
            auto& command = static_cast<LinkCommand&>(*held);
            Reply taken = *std::exchange(command.taken_, std::nullopt);
            taken.replicas_wanted = wanted;
            if (reply) {
                taken.replicas = wanted == 0 ? 0 : reply->view().integer().value_or(0);
                command.ended(std::move(taken), CommandStep::Next::deliver);
            } else {
                Fault fault = reply.error();
                fault.maybe_executed = true;
                command.ended(Unexpected{std::move(fault)}, CommandStep::Next::fail);
            }
        }
    }

    void encode(LinkCommand& command, TimePoint now) {
        const Call call = command.call(command.command.unclear());
        if (std::exchange(command.connection_, number_) != number_) prepare(command, call);
        if (command.command.form().whole) scripts_written_.push_back(call.script());
        const std::int64_t server_deadline =
            connection_->clock().server_deadline(now, saturating_sub(command.answer_by(), now));
        call.append_to(out_, encode_options(command.command.form(), *connection_, server_deadline));
        queue_.written(command, now);
    }

    /// It goes out over this connection for the first time.
    void prepare(LinkCommand& command, const Call& call) {
        command.script_ = call.script();
        command.shape_ = call.shape();
        command.can_omit_keys_ = call.can_omit_keys();
        CommandTraits traits =
            traits_of(call, *connection_, queue_.is_reused(), node_->key_access());
        traits.script_known = traits.script_known || was_written(call.script());
        command.command.connected(traits);
    }

    /// The script's text has been written: by the time a command behind that is read, the server knows it.
    bool was_written(const Script* script) const noexcept {
        return std::find(scripts_written_.begin(), scripts_written_.end(), script) !=
               scripts_written_.end();
    }

    void take(Expected<Reply, Fault>&& reply, TimePoint now) {
        auto& command = static_cast<LinkCommand&>(*queue_.answered(now));
        note_time(command, reply, now);
        const ReplyKind kind = kind_of(reply, command.shape_);
        note_script(command, kind);
        const CommandStep step = command.command.answered(kind);
        if (step.leave_server) node_->leave(*connection_);
        if (step.next == CommandStep::Next::send) return queue_.repeat(command);
        if (kind == ReplyKind::misshapen) reply = Unexpected{unexpected_reply()};
        node_->note(reply);
        complete(command, reply);
        if (replicas_ != Replicas::none() && reply && reply->view().is_taken(command.shape_)) {
            command.taken_.emplace(*std::move(reply));
            return queue_.hold(command);
        }
        command.ended(std::move(reply), step.next);
        if (step.drop_connection) break_off(unexpected_reply());
    }

    void note_time(const LinkCommand& command, const Expected<Reply, Fault>& reply, TimePoint now) {
        const auto time = time_in(reply, command.shape_);
        if (time) connection_->clock().answered(command.written_at(), *time, now);
    }

    /// One that the server has refused unseen is still unknown to it.
    void note_script(const LinkCommand& command, ReplyKind kind) {
        if (command.script_ == nullptr) return;
        if (kind == ReplyKind::value) {
            connection_->note_run(command.script_);
        } else if (command.command.form().whole) {
            std::erase(scripts_written_, command.script_);
        }
    }

    void complete(const LinkCommand& command, Expected<Reply, Fault>& reply) const {
        const bool unclear = command.command.unclear();
        if (reply) {
            if (command.can_omit_keys_) node_->learn(command.command.form());
            reply->repeated = unclear;
            // Its count is shared with all that is under way.
            if (command.shape_ == ReplyShape::acquired) reply->server = connection_->server();
            return;
        }
        Fault& fault = reply.error();
        fault.maybe_executed = unclear;
        if (fault.error.node.empty()) fault.error.node = connection_->node();
        if (!command.is_abandoned()) explain(fault, command.call(unclear));
    }

    void end_failed(const Fault& fault) {
        while (QueuedCommand* const command = queue_.take_failed()) end(*command, fault);
    }

    static void end(QueuedCommand& queued, Fault fault) {
        auto& command = static_cast<LinkCommand&>(queued);
        if (command.is_withdrawn()) fault = released();
        fault.maybe_executed = command.command.unclear();
        command.ended(Unexpected{std::move(fault)}, CommandStep::Next::fail);
    }

    Node* node_;
    CommandQueue queue_;
    Replicas replicas_;
    std::int64_t replicas_there_ = 0;
    TimePoint answer_by_ = TimePoint::max();  // of what was written together, the first
    std::optional<Connection> connection_;
    std::optional<Fault> fault_;
    std::optional<Fault> trouble_;  // the last one, while there is no connection
    TimePoint wanted_since_ = TimePoint::min();
    unsigned number_ = 0;  // of the connection
    std::string out_;      // stays as it is until all of it is written: TLS wants that
    std::size_t written_ = 0;
    std::vector<const Script*> scripts_written_;  // as a whole, over this connection
};

}  // namespace redlatch::inline v0::detail
