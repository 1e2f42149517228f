#pragma once

#include <redlatch/observer.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace redlatch::inline v0 {

/// An observer that counts, and prints what it counted in Prometheus' text format (version 0.0.4).
/// Counts over all locks of the clients that share it; a name is no label, since names may be many.
/// Thread-safe.
class Metrics final : public Observer {
public:
    /// @{
    /// Counts.
    void acquired(const Acquired& event) override {
        waited_.add(event.waited);
        tries_ += event.tries;
    }
    void timed_out(const TimedOut& event) override {
        ++timed_out_;
        tries_ += event.tries;
    }
    void released(const Released& event) override {
        const std::size_t row = row_of(event.outcome);
        ++releases_[row];
        const bool ended_now = row == static_cast<std::size_t>(Release::released) || !event.outcome;
        if (ended_now) held_.add(event.held_for);
    }
    void renewed(const Renewed&) override { ++renewed_; }
    void lost(const Lost& event) override {
        ++lost_;
        held_.add(event.held_for);
    }
    void error(const Error& error) override {
        ++errors_[static_cast<std::size_t>(error.code) % errors_.size()];
    }
    void reconnected(const Reconnected&) override { ++reconnected_; }
    void warning(const Warning&) override { ++warnings_; }
    /// @}

    /// The counters as they are now, ready to be served at `/metrics`.
    std::string prometheus() const {
        std::string text;
        waited_.print(text, "redlatch_wait_seconds", "Time from the call to the lock.");
        held_.print(text, "redlatch_hold_seconds", "Time from the lock to its end.");
        counter(text, "redlatch_tries_total", "Tries to take a lock at a server.", tries_);
        counter(text, "redlatch_timed_out_total", "Waits that ended without the lock.", timed_out_);
        header(text, "redlatch_releases_total", "Releases, by outcome.", "counter");
        for (std::size_t i = 0; i < releases_.size(); ++i) {
            labelled(text, "redlatch_releases_total", "outcome", outcomes[i], releases_[i]);
        }
        counter(text, "redlatch_renewed_total", "Leases renewed.", renewed_);
        counter(text, "redlatch_lost_total", "Locks lost while they were held.", lost_);
        header(text, "redlatch_errors_total", "Commands that failed, by error.", "counter");
        for (std::size_t i = 1; i < errors_.size(); ++i) {
            labelled(text, "redlatch_errors_total", "code", codes[i], errors_[i]);
        }
        counter(text, "redlatch_reconnected_total", "Servers that came back.", reconnected_);
        counter(text, "redlatch_warnings_total", "Servers that may drop a lock, or allow no queue.",
                warnings_);
        return text;
    }

private:
    using Counter = std::atomic<std::uint64_t>;

    static constexpr std::array<std::string_view, 5> outcomes{"released", "still_held", "expired",
                                                              "not_held", "error"};
    static constexpr std::array<std::string_view, 14> codes{
        "",         "timed_out",       "cancelled",      "lost",      "not_held", "unavailable",
        "denied",   "wrong_type",      "not_replicated", "no_quorum", "unclear",  "deadlock",
        "protocol", "invalid_argument"};
    static_assert(codes.size() == static_cast<std::size_t>(Errc::invalid_argument) + 1);

    /// How often something happened, and how long it took in all.
    class Durations {
    public:
        void add(Duration d) {
            ++count_;
            nanoseconds_ += static_cast<std::uint64_t>(d.count());
        }
        void print(std::string& text, std::string_view name, std::string_view help) const {
            header(text, name, help, "summary");
            text.append(name).append("_sum ").append(seconds()).append("\n");
            text.append(name).append("_count ").append(std::to_string(count_)).append("\n");
        }

    private:
        std::string seconds() const {
            constexpr std::uint64_t per_second = 1'000'000'000;
            const std::uint64_t all = nanoseconds_;
            const std::string fraction = std::to_string(all % per_second);
            return std::to_string(all / per_second) + "." + std::string(9 - fraction.size(), '0') +
                   fraction;
        }

        Counter count_{0};
        Counter nanoseconds_{0};
    };

    static std::size_t row_of(const Result<Release>& outcome) {
        return outcome ? static_cast<std::size_t>(*outcome) : outcomes.size() - 1;
    }

    static void header(std::string& text, std::string_view name, std::string_view help,
                       std::string_view type) {
        text.append("# HELP ").append(name).append(" ").append(help).append("\n");
        text.append("# TYPE ").append(name).append(" ").append(type).append("\n");
    }
    static void counter(std::string& text, std::string_view name, std::string_view help,
                        const Counter& value) {
        header(text, name, help, "counter");
        text.append(name).append(" ").append(std::to_string(value)).append("\n");
    }
    static void labelled(std::string& text, std::string_view name, std::string_view label,
                         std::string_view label_value, const Counter& value) {
        text.append(name).append("{").append(label).append("=\"").append(label_value);
        text.append("\"} ").append(std::to_string(value)).append("\n");
    }

    Durations waited_;
    Durations held_;
    Counter tries_{0};
    Counter timed_out_{0};
    std::array<Counter, outcomes.size()> releases_{};
    Counter renewed_{0};
    Counter lost_{0};
    std::array<Counter, codes.size()> errors_{};
    Counter reconnected_{0};
    Counter warnings_{0};
};

}  // namespace redlatch::inline v0
