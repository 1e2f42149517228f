#pragma once

#include "support/cluster.hpp"
#include <redlatch/core/slot.hpp>

#include <cstddef>
#include <string>

namespace redlatch::test {

/// A name whose slot is on that master of a ClusterGroup, as it began.
inline std::string name_on(std::size_t master, const std::string& stem = "job") {
    for (int i = 0;; ++i) {
        const std::string name = stem + std::to_string(i);
        if (ClusterGroup::owner_of(detail::slot_of(name)) == master) return name;
    }
}

/// Moves the slot of a name from one master to another, with all its keys.
inline void move_slot_of(ClusterGroup& group, const std::string& name, std::size_t from,
                         std::size_t to) {
    const unsigned slot = detail::slot_of(name);
    group.begin_to_move(slot, from, to);
    group.move_keys(slot, from, to);
    group.finish_move(slot, from, to);
}

}  // namespace redlatch::test
