#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/server_address.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What a Sentinel answers to the question for a service's master.
struct SentinelAnswer {
    enum class Kind { address, unknown_service, unreadable };

    Kind kind = Kind::unreadable;
    std::string host{};
    std::string port{};
};

/// One search for the master of a service that Sentinel watches over, as the guidelines for clients have it
/// (redis.io, "Guidelines for Redis clients with support for Redis Sentinel"): event in, action out. Asks
/// the Sentinels in turn. One that names a replica is out of date, and the next one is asked. Searching
/// again later is up to the caller.
class SentinelLookup {
public:
    struct Ask {
        std::size_t sentinel;  ///< by its place in the list
        TimePoint until;
    };
    /// That is the master, as far as the Sentinel knows. The server itself may say that it is a replica.
    struct TryMaster {
        ServerAddress master;
    };
    struct GiveUp {
        Fault fault;
    };
    using Action = OneOf<Ask, TryMaster, GiveUp>;

    /// `first`: the Sentinel of `count` to begin with. The search itself is over at `deadline`. `moves`: how often the
    /// service has learned of another master before.
    SentinelLookup(std::string service, std::size_t first, std::size_t count, TimePoint deadline,
                   std::uint64_t moves = 0)
        : service_(std::move(service)),
          first_(first),
          count_(count),
          deadline_(deadline),
          moves_(moves) {}

    Action begin(TimePoint now) { return next(now); }

    Action answered(const SentinelAnswer& answer, const std::string& sentinel, TimePoint now) {
        if (answer.kind == SentinelAnswer::Kind::unknown_service) {
            return failed(unknown_service(), sentinel, now);
        }
        const auto master = answer.kind == SentinelAnswer::Kind::address
                                ? parse_address(answer.host, answer.port)
                                : std::nullopt;
        if (!master) return failed(unexpected_reply(), sentinel, now);
        const bool known =
            std::find(replicas_.begin(), replicas_.end(), *master) != replicas_.end();
        if (known) return next(now);
        tried_ = *master;
        return TryMaster{*master};
    }

    /// A Sentinel gave no answer.
    Action failed(Fault fault, const std::string& sentinel, TimePoint now) {
        fault.error.node = sentinel;
        faults_.push_back(std::move(fault));
        return next(now);
    }

    /// The server that a Sentinel named is a replica.
    Action is_replica(Fault fault, TimePoint now) {
        replicas_.push_back(tried_);
        if (!not_master_) not_master_ = std::move(fault);
        return next(now);
    }

    /// The Sentinel that was asked first.
    std::size_t asked_first() const noexcept { return first_; }

    /// How often the service had learned of another master as the search began.
    std::uint64_t moves_before() const noexcept { return moves_; }

    /// The Sentinel that was asked last.
    std::size_t asked_last() const noexcept { return (first_ + asked_ - 1) % count_; }

private:
    /// Enough for a Sentinel that is there, and no long wait for one that is not.
    static constexpr std::chrono::milliseconds patience{500};

    Action next(TimePoint now) {
        if (asked_ == count_) return GiveUp{not_master_ ? *not_master_ : nobody_knows()};
        const Clock::duration left =
            std::max(saturating_sub(deadline_, now), Clock::duration::zero());
        if (left == Clock::duration::zero()) return GiveUp{not_master_ ? *not_master_ : too_late()};
        ++asked_;
        // The rest is for the others and for connecting to the master. In equal parts, one of many that are far away
        // would have too little.
        return Ask{asked_last(),
                   saturating_add(now, std::min<Clock::duration>(left / 2, patience))};
    }

    Fault unknown_service() const {
        return {.error = invalid("this Sentinel knows no service '" + printable(service_) + "'"),
                .transient = false};
    }

    /// No Sentinel could help. That is for good only if all of them said so, for the same reason.
    Fault nobody_knows() const {
        const Errc code = faults_.front().error.code;
        const bool for_good = std::all_of(
            faults_.begin(), faults_.end(),
            [code](const Fault& fault) { return !fault.transient && fault.error.code == code; });
        return in_vain(for_good ? code : Errc::unavailable, "no Sentinel names the master",
                       !for_good);
    }

    /// Not all have been asked.
    Fault too_late() const {
        return in_vain(Errc::unavailable, "no time is left to ask for the master", true);
    }

    Fault in_vain(Errc code, const char* why, bool transient) const {
        Fault fault{.error = make_error(code, why, "service " + printable(service_)),
                    .transient = transient};
        for (const Fault& cause : faults_) fault.error.causes.push_back(cause.error);
        return fault;
    }

    std::string service_;
    std::size_t first_;
    std::size_t count_;
    TimePoint deadline_;
    std::uint64_t moves_;
    std::size_t asked_ = 0;
    std::vector<Fault> faults_;  // of Sentinels
    ServerAddress tried_;
    std::vector<ServerAddress> replicas_;  // that were taken for the master
    std::optional<Fault> not_master_;      // what the first of them said
};

}  // namespace redlatch::inline v0::detail
