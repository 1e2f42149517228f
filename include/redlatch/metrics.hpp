#pragma once

#include <redlatch/names.hpp>
#include <redlatch/net/process_id.hpp>
#include <redlatch/observer.hpp>

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0 {

/// Gives the label under which `Metrics` counts a lock.
using LabelFunction = std::function<std::string(std::string_view lock)>;

namespace detail {

/// Bounds that fit waits and holds, in seconds: from 100 µs to 5 min.
inline std::vector<double> metrics_buckets() {
    return {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
}

}  // namespace detail

/// What `Metrics` counts by.
struct MetricsOptions {
    /// The upper bounds of the buckets of `redlatch_wait_seconds`, in seconds: positive, finite, each greater
    /// than the one before. An empty list leaves only the sum and the count. Default: 14 of them, from 0.0001
    /// to 300.
    std::vector<double> wait_buckets = detail::metrics_buckets();

    /// The same for `redlatch_hold_seconds`. Default: the same.
    std::vector<double> hold_buckets = detail::metrics_buckets();

    /// Returns the value of the label `lock` for all that concerns a lock: as a rule the fixed part of its
    /// name, `order` for `order:4711`. It has to return the same label for the same name each time. It is called
    /// for each event, by several threads at once. Where it throws, the lock counts under `other`; an event
    /// that finds no memory is not counted. Default: none.
    LabelFunction label{};

    /// How many labels there can be, from 1 to 10,000. The first labels that come are kept for good; later
    /// ones count under `other`. Each event of a later label looks at all labels: some 5 ns for each.
    /// Default: 100.
    std::size_t max_labels = 100;
};

/// An observer that counts, and prints what it counted in Prometheus' text format (version 0.0.4).
/// Counts over all locks of the clients that share it; a name is no label, since names may be many, but
/// `MetricsOptions::label` may make a few of them. Thread-safe.
class Metrics final : public Observer {
public:
    /// Counts by the default options.
    Metrics() : Metrics(MetricsOptions{}) {}

    /// Throws `LockError` with `Errc::invalid_argument` for bad options.
    explicit Metrics(MetricsOptions options)
        : wait_bounds_(check("wait_buckets", std::move(options.wait_buckets))),
          hold_bounds_(check("hold_buckets", std::move(options.hold_buckets))),
          label_(std::move(options.label)),
          labels_(label_ ? check(options.max_labels) : 0),
          rest_(*this, label_ ? other : "") {}
    ~Metrics() override {
        for (const auto& place : labels_) delete place.load();
    }

    /// @{
    /// Counts.
    void acquired(const Acquired& event) override {
        Series& series = of(event.key);
        series.waited.add(event.waited);
        series.tries += event.tries;
    }
    void timed_out(const TimedOut& event) override {
        Series& series = of(event.key);
        ++series.timed_out;
        series.tries += event.tries;
    }
    void released(const Released& event) override {
        ++of(event.key).releases[row_of(event.outcome)];
    }
    void renewed(const Renewed& event) override { ++of(event.key).renewed; }
    void lost(const Lost& event) override { ++of(event.key).lost; }
    void wait_began(const WaitBegan& event) override { of(event.key).waiters.add(1); }
    void wait_ended(const WaitEnded& event) override {
        Series& series = of(event.key);
        series.waiters.add(-1);
        const bool is_told_elsewhere =
            event.outcome || event.outcome.error().code == Errc::timed_out;
        if (!is_told_elsewhere) series.tries += event.tries;
    }
    void hold_began(const HoldBegan& event) override { of(event.key).holders.add(1); }
    void hold_ended(const HoldEnded& event) override {
        Series& series = of(event.key);
        series.holders.add(-1);
        series.held.add(event.held_for);
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
        const std::vector<const Series*> all = all_series();
        const auto each = [&](std::string_view name, std::string_view help, std::string_view type,
                              auto print) {
            header(text, name, help, type);
            for (const Series* series : all) print(*series, name);
        };
        const auto counter_of = [&text](Counter Series::*member) {
            return [&text, member](const Series& series, std::string_view name) {
                sample(text, name, {series.label}, std::to_string(series.*member));
            };
        };
        each("redlatch_wait_seconds", "Time from the call to the lock.", "histogram",
             [&](const Series& series, std::string_view name) {
                 series.waited.print(text, name, series.label);
             });
        each("redlatch_hold_seconds", "Time from the lock to its end.", "histogram",
             [&](const Series& series, std::string_view name) {
                 series.held.print(text, name, series.label);
             });
        const auto gauge_of = [&text](Gauge Series::*member) {
            return [&text, member](const Series& series, std::string_view name) {
                sample(text, name, {series.label}, std::to_string((series.*member).value()));
            };
        };
        each("redlatch_held", "Locks held now.", "gauge", gauge_of(&Series::holders));
        each("redlatch_waiting", "Calls that wait for a lock now.", "gauge",
             gauge_of(&Series::waiters));
        each("redlatch_tries_total",
             "Tries to take a lock at a server, of calls that got it, found it taken, or waited.",
             "counter", counter_of(&Series::tries));
        each("redlatch_timed_out_total",
             "Calls that found the lock taken until the end of their wait.", "counter",
             counter_of(&Series::timed_out));
        each("redlatch_releases_total", "Releases, by outcome.", "counter",
             [&](const Series& series, std::string_view name) {
                 for (std::size_t i = 0; i < series.releases.size(); ++i) {
                     const std::string_view outcome =
                         i < failed_release ? enumerator_name(static_cast<Release>(i)) : "error";
                     sample(text, name, {series.label, labelled("outcome", outcome)},
                            std::to_string(series.releases[i]));
                 }
             });
        each("redlatch_renewed_total", "Leases renewed.", "counter", counter_of(&Series::renewed));
        each("redlatch_lost_total", "Locks lost while they were held.", "counter",
             counter_of(&Series::lost));
        header(text, "redlatch_errors_total", "Commands that failed, by error.", "counter");
        for (std::size_t i = 1; i < errors_.size(); ++i) {
            const std::string_view code = enumerator_name(static_cast<Errc>(i));
            sample(text, "redlatch_errors_total", {labelled("code", code)},
                   std::to_string(errors_[i]));
        }
        header(text, "redlatch_reconnected_total", "Servers that came back.", "counter");
        sample(text, "redlatch_reconnected_total", {}, std::to_string(reconnected_));
        header(text, "redlatch_warnings_total",
               "Servers that may drop a lock or allow no queue, and holders of another key space.",
               "counter");
        sample(text, "redlatch_warnings_total", {}, std::to_string(warnings_));
        return text;
    }

private:
    using Counter = std::atomic<std::uint64_t>;
    using Bounds = std::vector<double>;

    static constexpr std::string_view other = "other";
    static constexpr std::size_t most_labels = 10'000;
    static constexpr std::size_t failed_release = static_cast<std::size_t>(Release::not_held) + 1;

    /// Counts how often something took how long.
    class Histogram {
    public:
        explicit Histogram(const Bounds& bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}

        void add(Duration d) {
            const Duration taken = std::max(d, Duration::zero());
            const double seconds = static_cast<double>(taken.count()) / 1e9;
            const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), seconds);
            ++counts_[static_cast<std::size_t>(bucket - bounds_.begin())];
            nanoseconds_ += static_cast<std::uint64_t>(taken.count());
        }

        void print(std::string& text, std::string_view name, std::string_view label) const {
            const std::string base{name};
            std::uint64_t count = 0;
            for (std::size_t i = 0; i < counts_.size(); ++i) {
                count += counts_[i];
                const std::string bound = i < bounds_.size() ? decimal(bounds_[i]) : "+Inf";
                sample(text, base + "_bucket", {label, labelled("le", bound)},
                       std::to_string(count));
            }
            sample(text, base + "_sum", {label}, seconds());
            sample(text, base + "_count", {label}, std::to_string(count));
        }

    private:
        std::string seconds() const {
            constexpr std::uint64_t per_second = 1'000'000'000;
            const std::uint64_t all = nanoseconds_;
            const std::string fraction = std::to_string(all % per_second);
            return std::to_string(all / per_second) + "." + std::string(9 - fraction.size(), '0') +
                   fraction;
        }

        static std::string decimal(double number) {
            std::array<char, 400> digits{};  // the least number has 324 zeros in front
            const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number,
                                           std::chars_format::fixed);
            return {digits.data(), end.ptr};
        }

        const Bounds& bounds_;
        std::vector<Counter> counts_;  // the last one of what is beyond all bounds
        Counter nanoseconds_{0};
    };

    /// How many there are now. It begins anew in a forked child: a child has nothing that its parent holds.
    class Gauge {
    public:
        void add(std::int32_t by) {
            Value old = value_.load(std::memory_order_relaxed);
            while (!value_.compare_exchange_weak(old, Value{this_process(), old.here() + by},
                                                 std::memory_order_relaxed)) {
            }
        }

        /// Not below 0: an end may be counted before its beginning where both are told at the same time.
        std::int32_t value() const { return std::max(value_.load().here(), 0); }

    private:
        /// Aligned as a whole, or clang calls libatomic, which nobody has linked.
        struct alignas(std::int64_t) Value {
            ::pid_t process = 0;
            std::int32_t number = 0;
            std::int32_t here() const noexcept { return process == this_process() ? number : 0; }
        };
        static ::pid_t this_process() noexcept { return detail::ProcessId::of_this_process(); }

        std::atomic<Value> value_{};
        static_assert(std::atomic<Value>::is_always_lock_free);
    };

    /// What is counted under one label.
    struct Series {
        Series(const Metrics& metrics, std::string_view name)
            : of(name),
              label(name.empty() && !metrics.label_ ? "" : labelled("lock", name)),
              waited(metrics.wait_bounds_),
              held(metrics.hold_bounds_) {}

        const std::string of;
        const std::string label;  // as it is printed
        Histogram waited;
        Histogram held;
        Gauge holders{};
        Gauge waiters{};
        Counter tries{0};
        Counter timed_out{0};
        std::array<Counter, failed_release + 1> releases{};
        Counter renewed{0};
        Counter lost{0};
    };

    static Bounds check(const char* option, Bounds bounds) {
        double last = 0;
        for (const double bound : bounds) {
            if (!std::isfinite(bound) || bound <= last) {
                refuse(std::string{"MetricsOptions::"} + option +
                       " has to be positive and finite, each greater than the one before");
            }
            last = bound;
        }
        return bounds;
    }
    static std::size_t check(std::size_t max_labels) {
        if (max_labels < 1 || max_labels > most_labels) {
            refuse("MetricsOptions::max_labels has to be between 1 and 10000");
        }
        return max_labels;
    }
    static void refuse(std::string why) { detail::raise(detail::invalid(std::move(why))); }

    /// Where a lock is counted. Takes no mutex, which a forked child could find locked for ever.
    Series& of(std::string_view lock) {
        if (!label_) return rest_;
        const std::string label = label_of(lock);
        if (label == other) return rest_;
        // A place that is taken stays taken. So each search for a label passes the same places in the same
        // order, and ends at the label or at the first free place.
        const std::size_t first = std::hash<std::string_view>{}(label) % labels_.size();
        std::unique_ptr<Series> made;
        for (std::size_t i = 0; i < labels_.size(); ++i) {
            auto& place = labels_[(first + i) % labels_.size()];
            Series* there = place.load(std::memory_order_acquire);
            if (there == nullptr) {
                if (made == nullptr) made = std::make_unique<Series>(*this, label);
                if (place.compare_exchange_strong(there, made.get())) return *made.release();
            }
            if (there->of == label) return *there;
        }
        return rest_;
    }

    /// Defined below: it catches exceptions of a user's function, which some files cannot be compiled with.
    std::string label_of(std::string_view lock) const;

    std::vector<const Series*> all_series() const {
        std::vector<const Series*> all;
        for (const auto& place : labels_) {
            if (const Series* there = place.load(std::memory_order_acquire)) all.push_back(there);
        }
        std::sort(all.begin(), all.end(),
                  [](const Series* a, const Series* b) { return a->of < b->of; });
        all.push_back(&rest_);
        return all;
    }

    static std::size_t row_of(const Result<Release>& outcome) {
        return outcome ? static_cast<std::size_t>(*outcome) : failed_release;
    }

    // ---- The text format

    static void header(std::string& text, std::string_view name, std::string_view help,
                       std::string_view type) {
        text.append("# HELP ").append(name).append(" ").append(help).append("\n");
        text.append("# TYPE ").append(name).append(" ").append(type).append("\n");
    }

    /// `labels`: empty ones are left out.
    static void sample(std::string& text, std::string_view name,
                       std::initializer_list<std::string_view> labels, std::string_view value) {
        text.append(name);
        char before = '{';
        for (const std::string_view label : labels) {
            if (label.empty()) continue;
            text.append(1, before).append(label);
            before = ',';
        }
        if (before == ',') text.append("}");
        text.append(" ").append(value).append("\n");
    }

    static std::string labelled(std::string_view label, std::string_view value) {
        std::string text{label};
        text.append("=\"");
        for (const char c : value) {
            if (c == '\n') {
                text.append("\\n");
                continue;
            }
            if (c == '\\' || c == '"') text.append("\\");
            text.append(1, c);
        }
        return text.append("\"");
    }

    /// With U+FFFD for each byte that is no part of UTF-8, and for NUL.
    static std::string valid_utf8(std::string text) {
        const auto is_ascii = [](unsigned char c) { return c >= 1 && c <= 0x7f; };
        if (std::all_of(text.begin(), text.end(), is_ascii)) return text;
        std::string valid;
        for (std::size_t i = 0; i < text.size();) {
            const std::size_t length = utf8_length(std::string_view{text}.substr(i));
            const bool bad = length == 0 || text[i] == '\0';
            bad ? valid.append("\xef\xbf\xbd") : valid.append(text, i, length);
            i += std::max<std::size_t>(length, 1);
        }
        return valid;
    }

    /// The length of the character that `text` begins with; 0 where it begins with none.
    static std::size_t utf8_length(std::string_view text) {
        const auto byte = [text](std::size_t i) {
            return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
        };
        const unsigned first = byte(0);
        if (first < 0x80) return 1;
        if (first < 0xc2 || first > 0xf4) return 0;
        // No longer form of a shorter one, no half of a pair, nothing beyond U+10FFFF.
        const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        if (byte(1) < least || byte(1) > most) return 0;
        const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        for (std::size_t i = 2; i < length; ++i) {
            if ((byte(i) & 0xc0U) != 0x80U) return 0;
        }
        return length;
    }

    const Bounds wait_bounds_;
    const Bounds hold_bounds_;
    const LabelFunction label_;
    std::vector<std::atomic<Series*>> labels_;
    Series rest_;  // of all locks or, with labels, of those that no other label has
    std::array<Counter, static_cast<std::size_t>(Errc::invalid_argument) + 1> errors_{};
    Counter reconnected_{0};
    Counter warnings_{0};
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE std::string Metrics::label_of(std::string_view lock) const {
    std::string label;
    try {
        label = label_(lock);
    } catch (const std::bad_alloc&) {
        throw;       // or an end would count under another label than its beginning
    } catch (...) {  // a user's function
        return std::string{other};
    }
    return valid_utf8(std::move(label));
}

#endif

}  // namespace redlatch::inline v0
