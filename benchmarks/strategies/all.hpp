#pragma once

#include "strategies/library.hpp"
#include "strategies/local_queue.hpp"
#include "strategies/polling.hpp"
#include "strategies/pubsub.hpp"
#include "strategies/strategy.hpp"
#include "strategies/token.hpp"

#include <memory>
#include <vector>

namespace redlatch::bench {

template <class OneSide>
std::unique_ptr<Side> make_side(const Place& place) {
    return std::make_unique<OneSide>(place);
}

inline std::vector<Strategy> all_strategies() {
    return {{.name = "redlatch", .side = make_side<LibrarySide<Simple>>},
            {.name = "redlatch_watchdog", .side = make_side<LibrarySide<Watchdog<Simple>>>},
            {.name = "polling", .side = make_side<SeparateSide<PollingContender>>},
            {.name = "pubsub", .side = make_side<SeparateSide<PubsubContender>>},
            {.name = "blpop",
             .side = make_side<SeparateSide<TokenContender>>,
             .set_up = make_token,
             .take_down = remove_token},
            {.name = "local_queue",
             .side = make_side<LocalQueueSide>,
             .set_up = make_token,
             .take_down = remove_token}};
}

}  // namespace redlatch::bench
