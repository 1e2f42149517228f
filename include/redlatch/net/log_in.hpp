#pragma once

#include <redlatch/net/detached_calls.hpp>
#include <redlatch/options.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace redlatch::inline v0::detail {

/// What `ClientOptions::credentials` gives, for all connections of one client. Thread-safe; the user's function
/// is called with no mutex held.
class LogIn {
public:
    using Given = std::shared_ptr<const Credentials>;

    explicit LogIn(std::function<Credentials()> ask) : ask_(std::move(ask)) {}

    /// The credentials that the server took last, or nobody has tried yet; else those that the user's
    /// function gives.
    Expected<Given, Fault> get(const Limit& limit) {
        {
            const std::lock_guard lock{mutex_};
            if (given_ != nullptr) return given_;
        }
        auto asked = calls_.run(
            {}, [ask = ask_] { return call(ask); }, "credentials", limit);
        if (!asked) return Unexpected{std::move(asked).error()};
        if (*asked == nullptr) {
            return Unexpected{
                io_fault("the function that gives the credentials threw an exception")};
        }
        auto fresh = std::static_pointer_cast<const Credentials>(*asked);
        {
            const std::lock_guard lock{mutex_};
            if (given_ == nullptr && fresh != refused_) given_ = std::move(fresh);
            if (given_ != nullptr) return given_;
        }
        return get(limit);  // another connection has been refused these meanwhile
    }

    /// A server has refused these.
    void refused(const Given& given) {
        const std::lock_guard lock{mutex_};
        if (given_ == given) given_ = nullptr;
        refused_ = given;
    }

private:
    /// Null where it throws: the exception may have a secret in it.
    static Given call(const std::function<Credentials()>& ask) noexcept {
        try {
            return std::make_shared<const Credentials>(ask());
        } catch (...) {
            return nullptr;
        }
    }

    const std::function<Credentials()> ask_;
    DetachedCalls calls_{"redlatch log in"};
    std::mutex mutex_{};
    Given given_{};
    Given refused_{};  // last
};

}  // namespace redlatch::inline v0::detail
