#pragma once

#include "compare.hpp"
#include "raw_connection.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace redlatch::bench {

/// What one connection and one thread can have at most: the commands of the library, of many locks at once. All are
/// taken with one write, then all are given back with one.
class RawPipeline {
public:
    RawPipeline(const std::string& uri, const std::vector<std::string>& names,
                std::chrono::milliseconds lease)
        : connection_(uri), lease_(std::to_string(lease.count())) {
        for (const std::string& name : names) locks_.emplace_back(name);
        release_ = connection_.load(Simple::scripts().release.source());
    }

    Sample run_for(std::chrono::milliseconds duration) {
        const Stretch stretch;
        std::size_t done = 0;
        bool good = true;
        for (; good && !stretch.is_over(duration); done += locks_.size()) {
            good = take_all() && give_all_back();
        }
        return stretch.sample(done, good ? "" : "a lock was not taken or not released");
    }

private:
    /// As the library names what belongs to a lock.
    struct RawLock {
        explicit RawLock(const std::string& name)
            : key(name),
              queue("redlatch:queue:{" + name + "}"),
              waiters("redlatch:waiters:{" + name + "}"),
              fence("redlatch:fence:{" + name + "}") {}
        std::string key;
        std::string queue;
        std::string waiters;
        std::string fence;
        std::string token{};
    };

    bool take_all() {
        for (RawLock& lock : locks_) {
            lock.token = tokens_.next();
            connection_.append<6>({"SET", lock.key, lock.token, "NX", "PX", lease_});
        }
        return all_of_replies([](const RawConnection::Reply& reply) { return reply.is_ok(); });
    }

    bool give_all_back() {
        for (const RawLock& lock : locks_) {
            connection_.append<9>({"EVALSHA", release_, "4", lock.key, lock.queue, lock.waiters,
                                   lock.fence, lock.token, server});
        }
        return all_of_replies([](const RawConnection::Reply& reply) { return reply.is_one(); });
    }

    template <class Good>
    bool all_of_replies(Good good) {
        bool all = true;
        for (std::size_t i = 0; i < locks_.size(); ++i) all = good(connection_.reply()) && all;
        return all;
    }

    /// Of the length of a run id.
    static constexpr std::string_view server = "0123456789012345678901234567890123456789";

    RawConnection connection_;
    RawTokens tokens_;
    std::string lease_;
    std::string release_;
    std::vector<RawLock> locks_;
};

}  // namespace redlatch::bench
