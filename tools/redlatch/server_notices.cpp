#include "server_notices.hpp"

#include "any_lock.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <utility>

namespace tool {

void ServerNotices::end(bool is_acquired) {
    const std::lock_guard lock{mutex_};
    is_told_ = true;
    last_error_.reset();
    is_acquired_ = is_acquired;
    if (!is_acquired) return;
    for (const std::string& warning : std::exchange(warnings_, {})) complain(*settings_, warning);
}

std::optional<redlatch::Error> ServerNotices::last_error() const {
    const std::lock_guard lock{mutex_};
    return last_error_;
}

void ServerNotices::wait_began(const WaitBegan& event) {
    if (settings_->verbose) complain(*settings_, "waiting for " + printable(event.key));
}

void ServerNotices::renewed(const Renewed&) {
    const std::lock_guard lock{mutex_};
    last_error_.reset();
}

void ServerNotices::error(const redlatch::Error& event) {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock{mutex_};
    last_error_ = event;
    // Over several masters it is the quorum that is missing.
    using redlatch::Errc;
    if (event.code != Errc::unavailable && event.code != Errc::no_quorum) return;
    if (!began_) began_ = now;
    if (is_told_ || now - *began_ < told_after) return;
    is_told_ = true;
    complain(*settings_, "still waiting: " + event.describe());
}

void ServerNotices::reconnected(const Reconnected&) {
    const std::lock_guard lock{mutex_};
    began_.reset();
}

void ServerNotices::warning(const Warning& event) {
    const std::string node = event.node.empty() ? "" : event.node + ": ";
    std::string line = "warning: " + node + event.message;
    const std::lock_guard lock{mutex_};
    if (is_acquired_ || settings_->verbose) {
        complain(*settings_, line);
    } else {
        warnings_.push_back(std::move(line));
    }
}

}  // namespace tool
