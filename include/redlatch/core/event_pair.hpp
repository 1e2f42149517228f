#pragma once

#include <redlatch/compilation.hpp>

#include <atomic>

namespace redlatch::inline v0::detail {

/// A beginning and an end, of which the observer hears in this order, or of neither: a beginning may be dropped
/// on its way, or be refused by the observer. Thread-safe.
class EventPair {
public:
    /// The beginning will not be told, or was told in vain.
    void drop() noexcept { state_.fetch_or(dropped); }
    /// Then nobody need be sent to tell of the end.
    bool is_dropped() const noexcept { return (state_.load() & dropped) != 0; }

    /// Whether the beginning is to be told, now that its turn has come. Once.
    [[nodiscard]] bool begins() noexcept { return (state_.fetch_or(begun) & ended) == 0; }

    /// Whether the end is to be told. Once; where the end comes first, neither is told.
    [[nodiscard]] bool ends() noexcept {
        return (state_.fetch_or(ended) & (begun | dropped)) == begun;
    }

private:
    static constexpr unsigned dropped = 1;
    static constexpr unsigned begun = 2;
    static constexpr unsigned ended = 4;

    std::atomic<unsigned> state_{0};
};

}  // namespace redlatch::inline v0::detail
