#pragma once

#include "../history/recorder.hpp"
#include "faults.hpp"
#include "plan.hpp"
#include "standstill_watch.hpp"
#include "support/process.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "wall_clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace redlatch::test::fault {

/// One of the client processes, and the links by which it reaches the servers.
struct Station {
    std::vector<std::unique_ptr<Proxy>> links;
    ClientPlan plan;
    std::unique_ptr<ChildProcess> client;
};

/// What is under test: the servers for locks, the store, and the stations. One thread at a time, and it
/// has to be the main one.
class Laboratory {
public:
    struct Setup {
        std::string folder;  ///< histories go there
        std::uint64_t seed = 0;
        FaultClass faults = FaultClass::inside;
        std::size_t stations = 3;
        std::size_t masters = 1;  ///< servers that know nothing of each other
        ClientPlan client{};      ///< what all clients have in common
        std::chrono::milliseconds latency{
            0};                      ///< of all links, each way, as long as no fault passes by
        std::string other_client{};  ///< a program; every second client runs it, of another version
    };

    explicit Laboratory(const Setup& setup);

    RedisServer& server(std::size_t number) { return servers_.at(number); }
    [[nodiscard]] std::size_t masters() const { return servers_.size(); }
    Station& station(std::size_t number) { return stations_[number]; }
    [[nodiscard]] std::size_t stations() const { return stations_.size(); }
    WallClock& clock() { return clock_; }

    /// A connection to a server that no fault concerns but the server's own.
    [[nodiscard]] RawRedis server_side(std::size_t number) const;

    /// Starts a client, also in the place of one that was killed.
    void start_client(Station& station);

    /// Waits for a client that was told to stop, and starts another in its place. What did not end in
    /// order is told by `stop_clients`.
    void replace_client(Station& station, std::chrono::milliseconds limit);

    /// Tells all clients to stop, and waits for their end. What did not end in order.
    [[nodiscard]] std::vector<std::string> stop_clients(std::chrono::milliseconds limit);

    /// Writes down what the servers have in use, in all. Waits until all locks are gone, but not for
    /// longer than `limit`.
    void note_servers(std::chrono::milliseconds limit);

    /// Writes the store's log into the folder.
    void save_store_log();

private:
    [[nodiscard]] RedisServerOptions server_options() const;
    void await_end(Station& station, std::chrono::milliseconds limit);

    Setup setup_;
    Recorder recorder_;
    TempFolder clock_folder_;
    WallClock clock_{clock_folder_.file("offset")};
    std::deque<RedisServer> servers_;
    RedisServer store_;
    StandstillWatch standstills_{setup_.folder + "/machine.jsonl", store_.uri()};
    std::vector<Station> stations_;
    std::vector<std::string> trouble_;
    int started_ = 0;
};

}  // namespace redlatch::test::fault
