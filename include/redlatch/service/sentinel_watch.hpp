#pragma once

#include <redlatch/service/listener.hpp>
#include <redlatch/topology/sentinel.hpp>

#include <chrono>

namespace redlatch::inline v0::detail {

/// Hears from Sentinel that the master has changed, so that a master that was deposed in good health
/// is left at once. Only a hint: what it misses, the next connection that has to be made will find.
/// One connection and one thread. Thread-safe.
class SentinelWatch {
public:
    SentinelWatch(SentinelDialer& dialer, std::chrono::milliseconds command_timeout)
        : dialer_(&dialer), command_timeout_(command_timeout) {}

    /// Begins to listen, at the first call. Returns at once.
    void start() noexcept { static_cast<void>(listener_.start()); }

    /// Tells the thread to end, which takes at most the time for one command. Returns at once.
    void begin_to_close() { listener_.begin_to_close(); }

    /// Ends the thread.
    void close() { listener_.close(); }

private:
    using Outcome = Listener::Outcome;

    Outcome listen_on(Connection& connection) {
        const Limit limit = Limit::in(command_timeout_);
        const Call subscribe = Call::plain({"SUBSCRIBE", "+switch-master"});
        if (auto done = connection.call(subscribe.wire(), limit); !done) {
            return Listener::what_of(done.error());
        }
        dialer_->look_again(limit);  // for what was missed before
        while (auto message = connection.receive(Limit{})) {
            const ReplyView parts = message->view();
            if (parts.size() == 3) dialer_->hear(parts[2].text());
        }
        return Outcome::ended;
    }

    SentinelDialer* dialer_;
    const std::chrono::milliseconds command_timeout_;
    Listener listener_{
        {.connect = [this] { return dialer_->open_sentinel(Limit::in(command_timeout_)); },
         .listen = [this](Connection& connection) { return listen_on(connection); },
         .ended = [](Outcome) {}}};
};

}  // namespace redlatch::inline v0::detail
