#include "server_notices.hpp"

#include "any_lock.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <utility>

namespace tool {

// Nothing is said while the mutex is held: whoever asks for it would wait for somebody to read that.

void ServerNotices::end(bool is_acquired) {
    for (const std::string& warning : warnings_at_end(is_acquired)) complain(*settings_, warning);
}

std::vector<std::string> ServerNotices::warnings_at_end(bool is_acquired) {
    const std::lock_guard lock{mutex_};
    is_told_ = true;
    last_error_.reset();
    is_acquired_ = is_acquired;
    if (!is_acquired) return {};
    return std::exchange(warnings_, {});
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
    if (is_to_be_told(event)) complain(*settings_, "still waiting: " + event.describe());
}

bool ServerNotices::is_to_be_told(const redlatch::Error& event) {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock{mutex_};
    last_error_ = event;
    // Over several masters it is the quorum that is missing.
    using redlatch::Errc;
    if (event.code != Errc::unavailable && event.code != Errc::no_quorum) return false;
    if (!began_) began_ = now;
    if (is_told_ || now - *began_ < told_after) return false;
    is_told_ = true;
    return true;
}

void ServerNotices::reconnected(const Reconnected&) {
    const std::lock_guard lock{mutex_};
    began_.reset();
}

void ServerNotices::warning(const Warning& event) {
    const std::string node = event.node.empty() ? "" : event.node + ": ";
    const std::string line = "warning: " + node + event.message;
    if (!is_kept(line)) complain(*settings_, line);
}

bool ServerNotices::is_kept(const std::string& warning) {
    const std::lock_guard lock{mutex_};
    if (is_acquired_ || settings_->verbose) return false;
    warnings_.push_back(warning);
    return true;
}

}  // namespace tool
