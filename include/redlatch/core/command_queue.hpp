#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/command.hpp>
#include <redlatch/core/intrusive_index.hpp>
#include <redlatch/core/intrusive_list.hpp>
#include <redlatch/core/silence.hpp>
#include <redlatch/core/token_hash.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace redlatch::inline v0::detail {

/// What goes out first.
enum class CommandRank : std::uint8_t {
    release,    ///< first; no command of its token is left to be written behind it
    extension,  ///< first, as all that tells a hold's count, in the order of the calls
    usual,
};

/// One command as a `CommandQueue` has it. Its owner keeps it until the queue has given it back.
class QueuedCommand : public IntrusiveList<QueuedCommand>::Hook {
public:
    Command command{ReplyUse::pipelined};

    bool is_queued() const noexcept { return stage_ != Stage::outside; }

    /// Nobody waits for its answer any more.
    bool is_abandoned() const noexcept { return abandoned_; }

    /// It was never written, and is to be.
    bool is_unwritten() const noexcept {
        return is_queued() && stage_ != Stage::failed && sent_ == TimePoint::min();
    }

    /// It has been answered. It is given back when the commands that its answer led to are answered too.
    bool is_held() const noexcept { return stage_ == Stage::held; }

    /// A release of its token came before it was written.
    bool is_withdrawn() const noexcept { return withdrawn_; }

    /// When it was written first; for ever in the past where it never was.
    TimePoint sent() const noexcept { return sent_; }

    /// When it was written last.
    TimePoint written_at() const noexcept { return written_at_; }

protected:
    QueuedCommand() = default;
    ~QueuedCommand() = default;

private:
    friend class CommandQueue;

    /// Among those that are unwritten, by the hash of its token.
    struct Unwritten : IntrusiveList<Unwritten>::Hook {
        explicit Unwritten(QueuedCommand& its) : command(&its) {}
        QueuedCommand* command;
        std::uint64_t hash = 0;
    };

    enum class Stage : std::uint8_t { outside, again, first, usual, written, held, failed };

    std::string_view token_;
    Unwritten unwritten_{*this};
    TimePoint added_ = TimePoint::min();  // where there was no connection
    TimePoint sent_ = TimePoint::min();
    TimePoint written_at_ = TimePoint::min();
    Stage stage_ = Stage::outside;
    bool abandoned_ = false;
    bool withdrawn_ = false;
};

/// The commands to one server that go over one connection, without waiting for the answers to those
/// before: which is written next, whose answer comes next, and when the connection is given up. Commands that
/// are unwritten then wait for the next connection.
class CommandQueue {
public:
    struct Limits {
        Clock::duration command_timeout;
        std::size_t written = 1024;                   ///< unanswered at a time
        std::size_t bytes = std::size_t{128} * 1024;  ///< written at a time
    };

    explicit CommandQueue(const Limits& limits)
        : limits_(limits), silence_(limits.command_timeout) {}

    /// `token`: for which it speaks; borrowed. A release makes `take_failed` give back the unwritten commands
    /// of its token. `now`: where there is no connection; for ever in the past where there is one.
    void add(QueuedCommand& command, CommandRank rank, std::string_view token,
             TimePoint now = TimePoint::min()) noexcept {
        command.token_ = token;
        command.added_ = now;
        command.unwritten_.hash = token_hash(token);
        if (rank == CommandRank::release) withdraw(token, command.unwritten_.hash);
        put(command, rank == CommandRank::usual ? Stage::usual : Stage::first);
    }

    /// A release of that token is added here, or to another queue.
    void withdraw(std::string_view token) noexcept { withdraw(token, token_hash(token)); }

    /// It is written once more, before all others.
    void repeat(QueuedCommand& command) noexcept { put(command, Stage::again); }

    bool has_unwritten() const noexcept { return next() != nullptr; }
    bool has_written() const noexcept { return written_count_ != 0; }

    /// What is written next, behind `bytes` that are written with it; null where nothing may be.
    QueuedCommand* next_to_write(std::size_t bytes) const noexcept {
        const bool full = written_count_ >= limits_.written || bytes >= limits_.bytes;
        return full ? nullptr : next();
    }

    /// It is not written after all.
    void take_out(QueuedCommand& command) noexcept { take(command); }

    void written(QueuedCommand& command, TimePoint now) noexcept {
        take(command);
        command.written_at_ = now;
        if (command.sent_ == TimePoint::min()) command.sent_ = now;
        put(command, Stage::written);
    }

    /// An answer has come: whose it is. Null where none is due.
    QueuedCommand* answered(TimePoint now) noexcept {
        QueuedCommand* const command = take_front(Stage::written);
        silence_.answered(now, !has_written());
        return command;
    }

    /// It has been answered. `take_held` gives it back when the commands that its answer led to are answered too.
    void hold(QueuedCommand& command) noexcept { put(command, Stage::held); }
    bool has_held() const noexcept { return !lists_[index(Stage::held)].empty(); }
    QueuedCommand* take_held() noexcept { return take_front(Stage::held); }

    /// Nobody waits for it any more. True where it may be carried out: then it stays until its answer has
    /// come, or it is known that none will. False where it is outside again.
    bool abandon(QueuedCommand& command) noexcept {
        if (command.stage_ == Stage::outside) return false;
        command.abandoned_ = true;
        command.command.leave();
        if (command.stage_ == Stage::written || command.stage_ == Stage::held) return true;
        take(command);
        if (command.command.unclear()) put(command, Stage::failed);
        return command.command.unclear();
    }

    /// As `Silence` has them:

    TimePoint gone_at() const noexcept {
        const QueuedCommand* const oldest = lists_[index(Stage::written)].front();
        return silence_.gone_at(oldest == nullptr ? TimePoint::max() : oldest->written_at_);
    }
    bool is_reused() const noexcept { return silence_.is_reused(); }

    /// Whether one has come within `command_timeout`.
    bool gets_answers(TimePoint now) const noexcept {
        return silence_.has_answered_since(now - limits_.command_timeout);
    }

    /// There is no connection any more: those written get no answer. Each is written over the next one, or
    /// given back by `take_failed`.
    void disconnected(ConnectionFailure failure) noexcept {
        silence_.disconnected();
        for (const Stage stage : {Stage::held, Stage::written}) fail(stage, failure);
    }

    /// The same when the time of `gone_at` has come. At a server that is silent, a command that was written later than
    /// `command_timeout` ago has time left for the next connection.
    void timed_out(TimePoint now) noexcept {
        const bool trickles = gets_answers(now);
        const TimePoint in_vain = trickles ? TimePoint::max() : now - limits_.command_timeout;
        silence_.disconnected();
        for (const Stage stage : {Stage::held, Stage::written}) {
            fail(stage, {.maybe_executed = true}, in_vain);
        }
    }

    /// An attempt to connect that began then has failed: `take_failed` gives back what was unwritten at that time.
    /// Commands that came later wait for the next attempt.
    void not_connected(TimePoint begun) noexcept {
        for (const Stage stage : {Stage::again, Stage::first, Stage::usual}) {
            list(stage).for_each([&](QueuedCommand& command) {
                if (command.added_ <= begun) fail(command, {});
            });
        }
    }

    QueuedCommand* take_failed() noexcept { return take_front(Stage::failed); }

private:
    using Stage = QueuedCommand::Stage;

    void withdraw(std::string_view token, std::uint64_t hash) noexcept {
        unwritten_.for_each_of(hash, [&](const auto& unwritten) {
            QueuedCommand& command = *unwritten.command;
            if (command.token_ != token) return;
            take(command);
            command.withdrawn_ = true;
            put(command, Stage::failed);
        });
    }

    static std::size_t index(Stage stage) noexcept { return static_cast<std::size_t>(stage) - 1; }
    IntrusiveList<QueuedCommand>& list(Stage stage) noexcept { return lists_[index(stage)]; }

    static bool is_unwritten(Stage stage) noexcept {
        return stage == Stage::again || stage == Stage::first || stage == Stage::usual;
    }

    QueuedCommand* next() const noexcept {
        for (const Stage stage : {Stage::again, Stage::first, Stage::usual}) {
            QueuedCommand* const command = lists_[index(stage)].front();
            if (command != nullptr) return command;
        }
        return nullptr;
    }

    QueuedCommand* take_front(Stage stage) noexcept {
        QueuedCommand* const command = list(stage).front();
        if (command != nullptr) take(*command);
        return command;
    }

    void put(QueuedCommand& command, Stage stage) noexcept {
        list(stage).push_back(command);
        command.stage_ = stage;
        if (is_unwritten(stage)) unwritten_.add(command.unwritten_);
        if (stage == Stage::written) ++written_count_;
    }

    void take(QueuedCommand& command) noexcept {
        list(command.stage_).remove(command);
        if (is_unwritten(command.stage_)) unwritten_.remove(command.unwritten_);
        if (command.stage_ == Stage::written) --written_count_;
        command.stage_ = Stage::outside;
    }

    /// `in_vain`: commands written by then have waited for their answers long enough.
    void fail(Stage stage, ConnectionFailure failure,
              TimePoint in_vain = TimePoint::max()) noexcept {
        list(stage).for_each([&](QueuedCommand& command) {
            failure.of_others = command.written_at_ > in_vain;
            fail(command, failure);
        });
    }

    void fail(QueuedCommand& command, ConnectionFailure failure) noexcept {
        take(command);
        const bool again = command.command.failed(failure).next == CommandStep::Next::reconnect;
        put(command, again ? Stage::again : Stage::failed);
    }

    const Limits limits_;
    Silence silence_;
    std::array<IntrusiveList<QueuedCommand>, 6> lists_;  // for each stage but `outside`
    IntrusiveIndex<QueuedCommand::Unwritten>
        unwritten_;  // most releases find nothing of their token there
    std::size_t written_count_ = 0;
};

}  // namespace redlatch::inline v0::detail
