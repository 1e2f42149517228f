#pragma once

#include <redlatch/compilation.hpp>

#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Where the lock table has what threads read through one handle, whose end ends what they have not. Thread-safe.
class ReadThrough {
public:
    void add(std::string entry);
    void remove(const std::string& entry);
    std::set<std::string> take();

private:
    std::mutex mutex_;
    std::set<std::string> entries_;
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE void ReadThrough::add(std::string entry) {
    const std::scoped_lock section{mutex_};
    entries_.insert(std::move(entry));
}

REDLATCH_INLINE void ReadThrough::remove(const std::string& entry) {
    const std::scoped_lock section{mutex_};
    entries_.erase(entry);
}

REDLATCH_INLINE std::set<std::string> ReadThrough::take() {
    const std::scoped_lock section{mutex_};
    return std::exchange(entries_, {});
}

#endif

}  // namespace redlatch::inline v0::detail
