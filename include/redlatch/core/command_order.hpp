#pragma once

#include <redlatch/compilation.hpp>

#include <array>
#include <cstdint>
#include <span>

namespace redlatch::inline v0::detail {

/// On which connections a command goes out to several masters. One that still owes the token an answer
/// executes that command first only if this one follows on the same connection.
class CommandOrder {
public:
    /// A connection on which nothing else waits to be sent.
    enum class Connection {
        behind_own,  ///< answers to the same token are to come on it
        idle,        ///< no answer is to come
        behind_any,  ///< answers to others are to come, and not late yet
    };

    /// `owed`: answers to the token that the masters owe before the first is asked. An answer that comes
    /// later may be to a command that this one has overtaken.
    explicit CommandOrder(std::int64_t owed) noexcept : owed_(owed) {}

    /// Which connections to try for the next master, the best one first. `still_owed`: at present.
    std::span<const Connection> choices(std::int64_t still_owed) const noexcept {
        static constexpr std::array all{Connection::behind_own, Connection::idle,
                                        Connection::behind_any};
        const std::span<const Connection> best_first{all};
        return still_owed > behind_ ? best_first : best_first.subspan(1);
    }

    /// The command goes out behind so many answers to the token.
    void goes_behind(std::int64_t answers) noexcept { behind_ += answers; }

    /// Whether some master may execute it before what the token has asked for.
    bool may_overtake() const noexcept { return owed_ > behind_; }

private:
    std::int64_t owed_;
    std::int64_t behind_ = 0;
};

}  // namespace redlatch::inline v0::detail
