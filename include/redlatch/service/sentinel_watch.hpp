#pragma once

#include <redlatch/service/listener.hpp>
#include <redlatch/topology/sentinel.hpp>

#include <poll.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Hears from Sentinel that the master has changed, so that a master that was deposed in good health
/// is left at once. Only a hint: the next connection that has to be made will find what it misses.
/// One connection and one thread. Thread-safe.
///
/// A Sentinel that says nothing for a second is asked something. One that does not answer is given up, and the next one
/// is listened to. Where an ACL forbids to listen, the question is who the master is.
class SentinelWatch {
public:
    /// `on_denied` is called with the Sentinel's name, once, where an ACL forbids to listen there.
    SentinelWatch(SentinelDialer& dialer, std::chrono::milliseconds command_timeout,
                  std::function<void(const std::string&)> on_denied)
        : dialer_(&dialer), command_timeout_(command_timeout), on_denied_(std::move(on_denied)) {}

    /// Begins to listen, at the first call. Returns at once.
    void start() noexcept { static_cast<void>(listener_.start()); }

    /// Tells the thread to end, which takes at most the time for one command. Returns at once.
    void begin_to_close() { listener_.begin_to_close(); }

    /// Ends the thread.
    void close() { listener_.close(); }

private:
    using Outcome = Listener::Outcome;

    static constexpr std::chrono::seconds longest_silence{1};

    Outcome listen_on(Connection& connection) {
        const Limit limit = Limit::in(command_timeout_);
        const Call subscribe = Call::plain({"SUBSCRIBE", "+switch-master"});
        const auto done = connection.call(subscribe.wire(), limit);
        const bool denied = !done && done.error().error.code == Errc::denied;
        if (!done && !denied) return Outcome::failed;
        if (denied && !std::exchange(told_, true)) on_denied_(connection.node());
        dialer_->look_again(limit);  // for what was missed before
        hear(connection, denied ? dialer_->question() : subscribe);
        return Outcome::ended;
    }

    /// Returns when the connection has ended, or an answer to `question` is due.
    void hear(Connection& connection, const Call& question) {
        bool asked = false;
        master_.clear();
        for (;;) {
            auto reply = connection.receive_if_there();
            if (!reply) return;
            if (*reply) {
                take((*reply)->view());
                asked = false;
                continue;
            }
            pollfd more = connection.more_to_come();
            const Clock::duration patience =
                asked ? Clock::duration{command_timeout_} : longest_silence;
            const auto ready = wait_any({&more, 1}, Limit::in(patience));
            if (!ready || (!*ready && asked)) return;
            if (*ready) continue;
            if (!connection.send(question.wire(), Limit::in(command_timeout_))) return;
            asked = true;
        }
    }

    void take(const ReplyView& parts) {
        if (parts.size() == 2) take_answer(parts);
        if (parts.size() == 3 && parts[0].text() == "message") dialer_->hear(parts[2].text());
    }

    /// An answer that a Sentinel repeats is no news: the servers, or another Sentinel, may have known better.
    void take_answer(const ReplyView& parts) {
        std::string master{parts[0].text()};
        master.append(" ").append(parts[1].text());
        if (std::exchange(master_, master) != master) dialer_->hear_answer(parts);
    }

    SentinelDialer* dialer_;
    const std::chrono::milliseconds command_timeout_;
    const std::function<void(const std::string&)> on_denied_;
    bool told_ = false;
    std::string master_;  // by the last answer over this connection
    Listener listener_{
        {.connect = [this] { return dialer_->open_sentinel(Limit::in(command_timeout_)); },
         .listen = [this](Connection& connection) { return listen_on(connection); },
         .ended = [](Outcome) {}}};
};

}  // namespace redlatch::inline v0::detail
