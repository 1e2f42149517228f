#pragma once

#include "plan.hpp"
#include "support/model_redis.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// The replicas of a master: how much of what was written each of them has got, how much of that the
/// master knows of, and what each would have as a master.
class Replication {
public:
    using Keys = std::shared_ptr<const ModelRedis::Snapshot>;

    Replication(const Plan& plan, const Timeline& timeline)
        : timeline_(&timeline),
          noise_(~plan.noise),
          delay_(plan.replication_delay),
          replicas_(static_cast<std::size_t>(plan.replicas)) {}

    /// Of what was written last.
    std::uint64_t offset() const { return offset_; }

    /// `keys`: what there is now; null where no replica will take over any more.
    void written(Keys keys) {
        ++offset_;
        keys_.push_back(std::move(keys));
        for (Replica& replica : replicas_) {
            const Moment out = std::max(timeline_->now(), replica.cut_until) + delay();
            replica.got.push_back(std::max(out, last(replica.got)));
            const Moment back = replica.got.back() + delay();
            replica.acknowledged.push_back(std::max(back, last(replica.acknowledged)));
        }
    }

    /// The replicas that are connected, as far as the master knows.
    int connected() const {
        return static_cast<int>(std::ranges::count_if(
            replicas_, [this](const Replica& one) { return !one.is_known_to_be_cut(now()); }));
    }

    /// How many have got all up to `offset`.
    int have(std::uint64_t offset) const {
        return static_cast<int>(std::ranges::count_if(replicas_, [&](const Replica& one) {
            return offset == 0 || one.got[index_of(offset)] <= now();
        }));
    }

    /// Of which replicas the master knows that they have it, a bit for each.
    unsigned acknowledged(std::uint64_t offset) const {
        unsigned all = 0;
        for (std::size_t i = 0; i < replicas_.size(); ++i) {
            const Replica& one = replicas_[i];
            const bool has = offset == 0 || one.acknowledged[index_of(offset)] <= now();
            if (has && !one.is_known_to_be_cut(now())) all |= 1U << i;
        }
        return all;
    }

    /// When, as things are, so many will have acknowledged it.
    Moment when_acknowledged(std::uint64_t offset, std::int64_t by) const {
        std::vector<Moment> times;
        for (const Replica& one : replicas_) {
            const Moment known = one.is_known_to_be_cut(now()) ? one.cut_until : now();
            times.push_back(offset == 0 ? known
                                        : std::max(one.acknowledged[index_of(offset)], known));
        }
        if (by > static_cast<std::int64_t>(times.size())) return Moment::max();
        std::ranges::sort(times);
        return times[static_cast<std::size_t>(std::max<std::int64_t>(by, 1) - 1)];
    }

    /// Nothing comes through between master and replica until then.
    void cut(std::size_t which, Moment until) {
        Replica& replica = replicas_[which];
        replica.cut_until = std::max(replica.cut_until, until);
        replica.noticed = noise_.one_in(2);
        for (std::vector<Moment>* const times : {&replica.got, &replica.acknowledged}) {
            const auto late = std::ranges::upper_bound(*times, now());
            std::for_each(late, times->end(),
                          [&](Moment& when) { when = std::max(when, replica.cut_until); });
        }
    }

    /// The replica becomes the master. The others, and the old master, are its replicas as soon as they
    /// have got all that it has. Null: it has nothing.
    Keys promote(std::size_t which) {
        const auto& got = replicas_[which].got;
        const auto has = std::ranges::upper_bound(got, now()) - got.begin();
        if (has > 0) base_ = keys_[static_cast<std::size_t>(has - 1)];
        offset_ = 0;
        keys_.clear();
        for (Replica& replica : replicas_) {
            replica = {.cut_until = now() + noise_.span(0ns, 200ms), .noticed = true};
        }
        return base_;
    }

private:
    struct Replica {
        Moment cut_until{0};
        bool noticed = false;  ///< by the master
        std::vector<Moment> got{};
        std::vector<Moment> acknowledged{};

        bool is_known_to_be_cut(Moment now) const { return noticed && now < cut_until; }
    };

    /// Of the write that ends at `offset`, in the times above. Not for 0.
    static std::size_t index_of(std::uint64_t offset) {
        return static_cast<std::size_t>(offset - 1);
    }

    Moment now() const { return timeline_->now(); }
    Moment delay() { return noise_.span(10us, delay_ + 20us); }
    static Moment last(const std::vector<Moment>& times) {
        return times.empty() ? 0ns : times.back();
    }

    const Timeline* timeline_;
    Dice noise_;
    Moment delay_;
    std::uint64_t offset_ = 0;
    Keys base_{};
    std::vector<Keys> keys_{};
    std::vector<Replica> replicas_;
};

}  // namespace redlatch::test::simulator
