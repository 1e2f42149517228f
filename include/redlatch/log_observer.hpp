#pragma once

#include <redlatch/error.hpp>
#include <redlatch/names.hpp>
#include <redlatch/observer.hpp>
#include <redlatch/result.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0 {

/// An observer that makes one line of text of each event:
///
///     event=acquired lock="order:4711" waited=12.400ms tries=1
///
/// The event comes first, the other fields as `docs/guide.md` says. A line has no end of line, printable ASCII
/// only, and no secret and no owner's token; other bytes of a name are `\xNN`, a quote and a backslash have a
/// backslash in front. There is no line for `hold_began` and `hold_ended`, as `acquired`, `released` and `lost`
/// say it, nor for a `wait_ended` that `acquired` or `timed_out` follows.
///
/// Threads of the client's own hand the lines to a function, as a rule one after the other. Several threads
/// do so at once beside a call that takes longer than 10 ms, and for several clients. Exceptions of the
/// function are dropped.
class LogObserver final : public Observer {
public:
    /// What is done with a line.
    using Write = std::function<void(std::string_view line)>;

    /// Hands each line to `write`. Throws `LockError` with `Errc::invalid_argument` where that is empty.
    explicit LogObserver(Write write) : write_(std::move(write)) {
        if (!write_) {
            detail::raise(detail::invalid("LogObserver needs a function"));
        }
    }

    /// @{
    /// Makes a line.
    void acquired(const Acquired& event) override {
        write(Line{"acquired"}.lock(event.key).took("waited", event.waited).tries(event.tries));
    }
    void timed_out(const TimedOut& event) override {
        write(Line{"timed_out"}.lock(event.key).took("waited", event.waited).tries(event.tries));
    }
    void released(const Released& event) override {
        Line line{"released"};
        line.lock(event.key).took("held_for", event.held_for);
        if (event.outcome) {
            write(line.field("outcome", enumerator_name(*event.outcome)));
        } else {
            write(line.error(event.outcome.error()));
        }
    }
    void renewed(const Renewed& event) override {
        write(Line{"renewed"}.lock(event.key).took("remaining", event.remaining));
    }
    void lost(const Lost& event) override {
        write(Line{"lost"}.lock(event.key).took("held_for", event.held_for));
    }
    void wait_began(const WaitBegan& event) override { write(Line{"wait_began"}.lock(event.key)); }
    void wait_ended(const WaitEnded& event) override {
        if (event.outcome || event.outcome.error().code == Errc::timed_out) return;
        Line line{"wait_ended"};
        write(line.lock(event.key).took("waited", event.waited).error(event.outcome.error()));
    }
    void error(const Error& error) override {
        Line line{"error"};
        if (!error.key.empty()) line.lock(error.key);
        if (!error.node.empty()) line.text("node", error.node);
        write(line.error(error));
    }
    void reconnected(const Reconnected& event) override {
        write(Line{"reconnected"}.text("node", event.node));
    }
    void warning(const Warning& event) override {
        write(Line{"warning"}.text("node", event.node).text("message", event.message));
    }
    /// @}

private:
    class Line {
    public:
        explicit Line(std::string_view event) { field("event", event); }

        Line& field(std::string_view name, std::string_view value) {
            if (!text_.empty()) text_.append(" ");
            text_.append(name).append("=").append(value);
            return *this;
        }
        Line& text(std::string_view name, std::string_view value) {
            std::string quoted{"\""};
            for (const char c : value) {
                if (c == '"' || c == '\\') quoted.append("\\");
                quoted.append(1, c);
            }
            return field(name, detail::printable(quoted.append("\"")));
        }
        Line& lock(std::string_view name) { return text("lock", name); }
        Line& tries(unsigned number) { return field("tries", std::to_string(number)); }
        Line& took(std::string_view name, Duration time) {
            const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
            std::string digits = std::to_string(us < 0 ? 0 : us);
            if (digits.size() < 4) digits.insert(0, 4 - digits.size(), '0');
            return field(name, digits.insert(digits.size() - 3, ".").append("ms"));
        }
        /// The description names the lock and the node once more: `text` makes their bytes printable.
        Line& error(const Error& error) {
            return field("code", enumerator_name(error.code))
                .text("error", detail::describe(error, std::identity{}));
        }

        const std::string& str() const noexcept { return text_; }

    private:
        std::string text_{};
    };

    void write(const Line& line) const { write_(line.str()); }

    const Write write_;
};

}  // namespace redlatch::inline v0
