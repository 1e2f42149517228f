#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/net/per_process.hpp>

#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// The lock table's entries of what threads of this process read through one handle: its end ends what the threads have
/// not ended. Thread-safe.
class ReadThrough {
public:
    void add(std::string entry);
    void remove(const std::string& entry);
    std::set<std::string> take();

private:
    struct Entries {
        std::mutex mutex;
        std::set<std::string> names;
    };

    PerProcess<Entries> entries_;
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE void ReadThrough::add(std::string entry) {
    Entries& entries = entries_.renew();
    const std::scoped_lock section{entries.mutex};
    entries.names.insert(std::move(entry));
}

REDLATCH_INLINE void ReadThrough::remove(const std::string& entry) {
    Entries& entries = entries_.renew();
    const std::scoped_lock section{entries.mutex};
    entries.names.erase(entry);
}

REDLATCH_INLINE std::set<std::string> ReadThrough::take() {
    Entries* const entries = entries_.existing();
    if (entries == nullptr) return {};
    const std::scoped_lock section{entries->mutex};
    return std::exchange(entries->names, {});
}

#endif

}  // namespace redlatch::inline v0::detail
