#pragma once

#include "harness/statistics.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/wait.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

namespace redlatch::bench {

/// Servers as if they were far away: a proxy before each, in one process of their own, so that this
/// one keeps a single thread and can fork.
class FarNetwork {
public:
    FarNetwork(const std::vector<std::string>& servers, std::chrono::microseconds there,
               std::chrono::microseconds back)
        : process_([&](test::LineChannel& parent) { return serve(parent, servers, there, back); }) {
        for (std::size_t i = 0; i < servers.size(); ++i) {
            const auto uri = process_.read_line();
            if (!uri) throw std::runtime_error{"the proxies did not come up"};
            uris_.push_back(*uri);
        }
    }

    /// One server, that far away; the way back takes the odd microsecond.
    FarNetwork(const std::string& server, std::chrono::microseconds round_trip)
        : FarNetwork(std::vector{server}, round_trip / 2, round_trip - round_trip / 2) {}

    /// In order, so that the proxies remove their sockets.
    ~FarNetwork() {
        process_.write_line("end");
        process_.wait();
    }
    FarNetwork(const FarNetwork&) = delete;
    FarNetwork& operator=(const FarNetwork&) = delete;

    /// How to reach the server of the same place in the list.
    const std::string& uri(std::size_t server) const { return uris_.at(server); }

    /// The time that a command really takes, which the proxy makes a little longer.
    Seconds round_trip(std::size_t server) const {
        test::RawRedis redis{uri(server)};
        std::vector<double> seconds;
        for (int i = 0; i < 5; ++i) {
            const test::Stopwatch watch;
            redis.ping();
            seconds.push_back(Seconds{watch.elapsed()}.count());
        }
        return Seconds{median(seconds)};
    }

private:
    /// Until the parent says so, or is gone.
    static int serve(test::LineChannel& parent, const std::vector<std::string>& servers,
                     std::chrono::microseconds there, std::chrono::microseconds back) {
        std::deque<test::Proxy> proxies;
        for (const std::string& server : servers) {
            test::Proxy& proxy = proxies.emplace_back(server);
            proxy.delay_requests(there);
            proxy.delay_replies(back);
            parent.write_line(proxy.uri());
        }
        while (!parent.read_line(std::chrono::hours{1}) && !parent.at_end()) {
        }
        return 0;
    }

    test::ChildProcess process_;
    std::vector<std::string> uris_;
};

}  // namespace redlatch::bench
