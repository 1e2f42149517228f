#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/vote_count.hpp>
#include <redlatch/types.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

class Renewal;

/// A master, by the number under which the driver knows it.
using MasterIndex = std::size_t;

/// The same command about one hold, for each of its masters. Where it is not answered in time the
/// try is over, and another one follows; an answer that comes later still counts.
class Try {
public:
    Try(const Try&) = delete;
    Try& operator=(const Try&) = delete;
    virtual ~Try() = default;

    const Hold& hold() const noexcept { return *hold_; }

    /// What it asks for; nothing where it releases the token.
    virtual std::optional<Lease> lease() const noexcept { return std::nullopt; }

    /// Whether it is about no key but the lock's, as the others may be at another server.
    bool lock_alone() const noexcept { return lock_alone_; }

    bool is_over() const noexcept { return over_; }

protected:
    friend class Renewal;

    explicit Try(std::shared_ptr<Hold> hold) : hold_(std::move(hold)) {}

    /// False where the command is of no use any more at `now`.
    virtual bool prepare(TimePoint now) = 0;
    /// Then it does not even begin.
    virtual void give_up() {}
    /// Which of those that decide about the key are to get the command.
    virtual std::vector<MasterIndex> choose(std::vector<MasterIndex> masters) = 0;
    /// Whether the answers still to come can change nothing.
    virtual bool is_decided() const = 0;
    /// Says what the votes mean; nothing more can change that.
    virtual void decide(Renewal& /*renewal*/, TimePoint /*now*/) {}
    /// The answer says that the command has done a part of its work.
    virtual bool goes_on(std::int64_t /*answer*/) { return false; }
    virtual void go_unanswered(Renewal& /*renewal*/) {}
    /// A command that was sent may be carried out after one that will be sent.
    virtual void note_unanswered() {}
    /// No server has all keys of its lock just now.
    virtual void keys_are_apart() {}
    /// The try is over: another one follows, or none.
    virtual void follow(Renewal& renewal, TimePoint now) = 0;
    /// Whether the command is sent once more to the masters that have not answered it.
    virtual bool wants_repeat() const { return false; }
    /// Whether it is the try that is sent once more.
    virtual bool is_repeat() const { return false; }

    std::shared_ptr<Hold> hold_;
    std::vector<MasterIndex> silent_{};  // who has to be asked again
    // Run ids of those that have voted.
    std::vector<std::shared_ptr<const std::string>> servers_{};
    VoteCount votes_{0};
    TimePoint sent_ = TimePoint::max();                                 // for the first time
    std::multimap<TimePoint, std::shared_ptr<Try>>::iterator place_{};  // while under way
    int redirections_ = 0;
    bool lock_alone_ = false;
    bool decided_ = false;
    bool refused_for_now_ = false;  // by a master, which has done nothing
    bool over_ = false;
};

}  // namespace redlatch::inline v0::detail
