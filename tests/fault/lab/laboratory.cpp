#include "laboratory.hpp"

#include "store.hpp"
#include "support/wait.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

namespace redlatch::test::fault {
namespace {

/// Locks that are held, and keys that would stay for ever. A waiter that was killed leaves the
/// companions of its lock for as long as they live.
long long keys_left(RawRedis& redis) {
    long long left = 0;
    for (const std::string& key : redis.keys()) {
        const bool companion = key.starts_with("redlatch:");
        if (!companion || redis.pttl(key) == -1) ++left;
    }
    return left;
}

}  // namespace

Laboratory::Laboratory(const Setup& setup)
    : setup_{setup}, recorder_{setup.folder + "/server.jsonl"}, store_{} {
    for (std::size_t i = 0; i < setup.masters; ++i) servers_.emplace_back(server_options());
    note_servers(std::chrono::milliseconds{0});
    for (std::size_t i = 0; i < setup.stations; ++i) {
        Station& station = stations_.emplace_back();
        station.plan = setup.client;
        for (const RedisServer& server : servers_) {
            station.links.push_back(std::make_unique<Proxy>(server.uri()));
            if (setup.latency.count() > 0) station.links.back()->delay(setup.latency);
            station.plan.servers.push_back(station.links.back()->uri());
        }
        station.plan.store = store_.uri();
        start_client(station);
    }
}

RedisServerOptions Laboratory::server_options() const {
    RedisServerOptions options;
    options.append_only = true;
    options.acl = {"laboratory on nopass ~* +@all"};
    options.config = {{"lua-time-limit", "20"}, {"auto-aof-rewrite-percentage", "0"}};
    if (setup_.faults == FaultClass::outside) options.env = clock_.env();
    return options;
}

RawRedis Laboratory::server_side(std::size_t number) const {
    RawRedis redis{servers_.at(number)};
    redis.auth("laboratory", "any");
    return redis;
}

void Laboratory::start_client(Station& station) {
    const std::string number = std::to_string(++started_);
    const bool other = !setup_.other_client.empty() && started_ % 2 == 0;
    station.plan.seed = setup_.seed * 1000 + static_cast<std::uint64_t>(started_);
    station.plan.history = setup_.folder + "/client-" + number + ".jsonl";
    station.client.reset();
    station.client = std::make_unique<ChildProcess>(ChildProcess::exec(
        other ? setup_.other_client : REDLATCH_FAULT_CLIENT, {to_text(station.plan)}));
}

std::vector<std::string> Laboratory::stop_clients(std::chrono::milliseconds limit) {
    for (Station& station : stations_) station.client->write_line("stop");
    for (Station& station : stations_) await_end(station, limit);
    return std::exchange(trouble_, {});
}

void Laboratory::replace_client(Station& station, std::chrono::milliseconds limit) {
    await_end(station, limit);
    start_client(station);
}

void Laboratory::await_end(Station& station, std::chrono::milliseconds limit) {
    const auto status = station.client->wait(limit);
    if (status && status->success()) return;
    std::ostringstream text;
    text << "client " << station.client->pid();
    if (status) {
        text << " ended with " << *status;
    } else {
        text << " did not end";
        station.client->kill();
    }
    trouble_.push_back(text.str());
}

void Laboratory::note_servers(std::chrono::milliseconds limit) {
    std::deque<RawRedis> looks;
    for (std::size_t i = 0; i < masters(); ++i) looks.push_back(server_side(i));
    std::map<std::string, long long> counts;
    const auto count = [&] {
        counts = {{"keys", 0}, {"clients", 0}, {"channels", 0}};
        for (RawRedis& redis : looks) {
            counts["keys"] += keys_left(redis);
            counts["clients"] += static_cast<long long>(redis.client_list().size()) - 1;
            counts["channels"] +=
                static_cast<long long>(redis.command({"PUBSUB", "CHANNELS"}).elements.size());
        }
    };
    static_cast<void>(eventually(
        [&] {
            count();
            return std::ranges::all_of(counts, [](const auto& entry) { return entry.second == 0; });
        },
        limit));
    count();
    Event event;
    event.op = Op::snapshot;
    event.stage = Stage::note;
    event.outcome = "server";
    event.counts = counts;
    recorder_.write(event);
}

void Laboratory::save_store_log() {
    Recorder log{setup_.folder + "/store.jsonl"};
    for (const Event& event : Store{store_.uri()}.log()) log.write(event);
}

}  // namespace redlatch::test::fault
