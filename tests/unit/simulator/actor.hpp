#pragma once

#include "handing_over.hpp"
#include "taking_set.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// One that acquires locks, one after the other, and does with them what its plan says: a thread, or an
/// asynchronous operation, which has no thread.
class Actor {
public:
    Actor(Client& client, const ActorPlan& plan, std::uint64_t serial)
        : client_(&client),
          plan_(&plan),
          thread_(LockOwner::thread(static_cast<detail::ThreadSerial>(serial))) {}
    Actor(const Actor&) = delete;
    Actor& operator=(const Actor&) = delete;

    void start() { next(); }
    bool finished() const {
        return at_ == plan_->acquisitions.size() && open_ == 0 &&
               std::ranges::all_of(adoptings_, [](const auto& one) { return one->finished(); });
    }

    /// How long one hangs: as good as for ever. A hold that is renewed is played through, which takes its steps.
    static constexpr Moment longest(const AcquisitionPlan& hanging) {
        constexpr int most_leases = 100;
        constexpr Moment most{1min};
        return hanging.watched ? std::min<Moment>(most, most_leases * hanging.lease.duration())
                               : most;
    }

private:
    void next() {
        if (at_ == plan_->acquisitions.size()) return;
        const AcquisitionPlan& wanted = plan_->acquisitions[at_];
        ++open_;
        client_->host().soon(wanted.pause, [this, &wanted] {
            if (!wanted.set.empty()) return acquire_set(wanted);
            acquire(wanted, own(wanted));
        });
    }

    /// Who will own what it acquires; nobody yet where that is the acquisition itself.
    LockOwner own(const AcquisitionPlan& wanted) const {
        const bool ignored = client_->world().has(Mutant::own_hold_nested_in);
        const bool owns_itself = wanted.owns_itself && !ignored;
        return plan_->asynchronous || owns_itself ? LockOwner{} : thread_;
    }

    void acquire(const AcquisitionPlan& wanted, LockOwner owner) {
        make_acquiring(wanted, owner).start();
    }

    /// A thread does nothing else meanwhile.
    void acquire_set(const AcquisitionPlan& wanted) {
        ++acquiring_;
        sets_.push_back(std::make_unique<TakingSet>(*client_, wanted, own(wanted),
                                                    plan_->asynchronous ? LockOwner{} : thread_,
                                                    [this, &wanted](const std::vector<Got>& all) {
                                                        --acquiring_;
                                                        if (all.empty()) return close_one();
                                                        open_ += static_cast<int>(all.size()) - 1;
                                                        for (const Got& got : all)
                                                            hold(wanted, got);
                                                    }));
        sets_.back()->start();
    }

    Acquiring& make_acquiring(const AcquisitionPlan& wanted, LockOwner owner) {
        ++acquiring_;
        acquirings_.push_back(std::make_unique<Acquiring>(
            *client_, wanted, owner, plan_->asynchronous ? LockOwner{} : thread_,
            is_by_lock(wanted) ? this : nullptr, [this, &wanted](const Result<Got>& got) {
                --acquiring_;
                if (!got) return close_one();
                hold(wanted, *got);
            }));
        return *acquirings_.back();
    }

    void hold(const AcquisitionPlan& wanted, const Got& got) {
        Host& host = client_->host();
        for (const ExtensionPlan& extension : wanted.extensions) {
            host.soon(extension.after, [this, got, lease = extension.lease] {
                extendings_.push_back(std::make_unique<Extending>(*client_, got.hold, lease));
                extendings_.back()->start();
            });
        }
        if (wanted.downgraded) {
            host.soon(*wanted.downgraded, [this, got] { downgrade(*client_, got.hold); });
        }
        for (const AcquisitionPlan& nested : wanted.nested) {
            ++open_;
            host.soon(nested.pause, [this, &wanted, &nested, got] { nest(wanted, nested, got); });
        }
        const Moment length = wanted.hangs ? longest(wanted) : wanted.hold;
        host.soon(length, [this, &wanted, got] { release(wanted, got); });
    }

    /// In `outer`, that `wanted` has got. A thread may ask again; `Held::nest()` is for all.
    void nest(const AcquisitionPlan& wanted, const AcquisitionPlan& nested, const Got& outer) {
        // It waits for its own `Held`, like anybody.
        if (wanted.owns_itself && nested.sends_release) return acquire(nested, own(nested));
        const LockOwner owner = outer.hold->owner();
        const bool asks_again = owner == thread_ && (!nested.is_held || nested.sends_release);
        if (asks_again) return acquire(nested, owner);
        make_acquiring(nested, owner).start_in(outer.hold);
    }

    bool is_by_lock(const AcquisitionPlan& wanted) const {
        return !plan_->asynchronous && !wanted.is_held;
    }

    /// To another process; to nobody where it cannot be.
    bool hand_over(const AcquisitionPlan& wanted, const Got& got) {
        detachings_.push_back(
            std::make_unique<Detaching>(*client_, got, [this, &wanted](const std::string& ticket) {
                if (!ticket.empty()) adopt(wanted, ticket);
                close_one();
            }));
        return detachings_.back()->start();
    }

    void adopt(const AcquisitionPlan& wanted, const std::string& ticket) {
        const auto process = static_cast<std::size_t>(wanted.handed_to->process);
        Client& client = *client_->world().clients->at(process);
        adoptings_.push_back(std::make_unique<Adopting>(client, wanted, ticket));
        client.host().soon(wanted.handed_to->after,
                           [adopting = adoptings_.back().get()] { adopting->start(); });
    }

    void release(const AcquisitionPlan& wanted, const Got& got) {
        if (wanted.handed_to && hand_over(wanted, got)) return;
        const bool by_lock = is_by_lock(wanted);
        if (by_lock && acquiring_ > 0) {  // the thread is still in `lock()`
            return client_->host().soon(1ms, [this, &wanted, got] { release(wanted, got); });
        }
        const auto ending = client_->end_at_table([&](LockTable& table) {
            return by_lock ? end_innermost(table, wanted, got.hold->reads())
                           : table.end_acquisition(*got.hold, got.id);
        });
        releasings_.push_back(std::make_unique<Releasing>(*client_, [this] { close_one(); }));
        releasings_.back()->start(
            ending, wanted.sends_release ? ReleaseMode::sent : ReleaseMode::confirmed);
    }

    /// What `unlock()` does, and for a reader `unlock_shared()`.
    LockTable::Ending end_innermost(LockTable& table, const AcquisitionPlan& wanted,
                                    bool downgraded) const {
        const std::string& key = Names::get().of(wanted.lock)->lock;
        const bool reading = downgraded || client_->world().plan->reads(wanted);
        if (!reading) return table.end_innermost(key, thread_);
        std::array entries{detail::reader_entry(key, thread_), key};
        const auto main = table.find(key, thread_);
        if (main != nullptr && main->valid(client_->now())) std::swap(entries[0], entries[1]);
        constexpr bool reads = true;
        auto ending = table.end_innermost(entries[0], thread_, reads);
        if (ending.kind != LockTable::Ending::Kind::nothing) return ending;
        return table.end_innermost(entries[1], thread_, reads);
    }

    /// One of what it has begun is over.
    void close_one() {
        if (--open_ != 0) return;
        ++at_;
        next();
    }

    Client* client_;
    const ActorPlan* plan_;
    LockOwner thread_;
    std::size_t at_ = 0;
    int open_ = 0;
    int acquiring_ = 0;
    std::vector<std::unique_ptr<Acquiring>> acquirings_;
    std::vector<std::unique_ptr<TakingSet>> sets_;
    std::vector<std::unique_ptr<Releasing>> releasings_;
    std::vector<std::unique_ptr<Extending>> extendings_;
    std::vector<std::unique_ptr<Detaching>> detachings_;
    std::vector<std::unique_ptr<Adopting>> adoptings_;
};

}  // namespace redlatch::test::simulator
