#include "outage_notice.hpp"

#include "verbs.hpp"

namespace tool {

void OutageNotice::end() {
    const std::lock_guard lock{mutex_};
    is_told_ = true;
}

void OutageNotice::error(const redlatch::Error& event) {
    if (event.code != redlatch::Errc::unavailable) return;
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock{mutex_};
    if (!began_) began_ = now;
    if (is_told_ || now - *began_ < told_after) return;
    is_told_ = true;
    complain(*settings_, "still waiting: " + event.describe());
}

void OutageNotice::reconnected(const Reconnected&) {
    const std::lock_guard lock{mutex_};
    began_.reset();
}

}  // namespace tool
