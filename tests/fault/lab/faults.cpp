#include "faults.hpp"

#include "laboratory.hpp"
#include "support/in_background.hpp"
#include "support/raw_redis.hpp"

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace redlatch::test::fault {
namespace {

using std::chrono::milliseconds;
using End = std::function<void()>;

constexpr Range at_once{};
constexpr Range a_while{milliseconds{20}, milliseconds{500}};
constexpr Range short_time{milliseconds{20}, milliseconds{200}};
constexpr Range long_time{milliseconds{5000}, milliseconds{6500}};
constexpr Range up_to_some_leases{milliseconds{30}, milliseconds{1500}};

/// A fault of a link: on until the link passes everything again.
template <class Verb>
Fault of_link(const char* name, Verb verb, Range duration = a_while) {
    return {name, Victim::link, FaultClass::inside, duration,
            [verb](Laboratory& laboratory, const Attack& attack, Dice& dice) -> End {
                Proxy& link = *laboratory.station(attack.station).links.at(attack.server);
                verb(link, dice);
                return [&link] { link.pass_whole(); };
            }};
}

/// A fault of the server that one command makes, and another one ends.
Fault of_server(const char* name, RawRedis::Command begin, RawRedis::Command end,
                Range duration = a_while, FaultClass of_class = FaultClass::inside) {
    return {name, Victim::server, of_class, duration,
            [begin = std::move(begin), end = std::move(end)](Laboratory& laboratory,
                                                             const Attack& attack, Dice&) -> End {
                laboratory.server_side(attack.server).command(begin);
                if (end.empty()) return {};
                return [&laboratory, end, number = attack.server] {
                    laboratory.server_side(number).command(end);
                };
            }};
}

/// A pause ends by itself: while it is on, the server would not listen to the end.
Fault paused(const char* name, const char* what) {
    return {name, Victim::server, FaultClass::inside, a_while,
            [what](Laboratory& laboratory, const Attack& attack, Dice&) -> End {
                const std::string time = std::to_string(attack.duration.count());
                laboratory.server_side(attack.server).command({"CLIENT", "PAUSE", time, what});
                return [] {};
            }};
}

Fault denied(const char* name, const char* rule) {
    return of_server(name, {"ACL", "SETUSER", "default", rule},
                     {"ACL", "SETUSER", "default", "+@all"});
}

Way any_way(Dice& dice) {
    constexpr std::array ways{Way::requests, Way::replies, Way::both};
    return ways.at(dice.below(ways.size()));
}

std::vector<Fault> faults_of_links() {
    return {
        of_link("delay",
                [](Proxy& link, Dice& dice) {
                    const milliseconds most{dice.between(5, 150)};
                    link.delay(most, most, any_way(dice));
                }),
        of_link("stall", [](Proxy& link, Dice& dice) { link.stall(any_way(dice)); }),
        of_link("black hole", [](Proxy& link, Dice& dice) { link.black_hole(any_way(dice)); }),
        of_link(
            "late requests", [](Proxy& link, Dice&) { link.hold_requests(); }, up_to_some_leases),
        of_link(
            "late replies", [](Proxy& link, Dice&) { link.hold_replies(); }, up_to_some_leases),
        of_link("lost replies",
                [](Proxy& link, Dice& dice) {
                    link.drop_replies_once(static_cast<int>(dice.between(1, 5)));
                }),
        of_link("trickle",
                [](Proxy& link, Dice& dice) {
                    link.trickle(1, milliseconds{dice.between(1, 3)}, any_way(dice));
                }),
        of_link("refuse",
                [](Proxy& link, Dice&) {
                    link.refuse();
                    link.cut();
                }),
        of_link(
            "cut", [](Proxy& link, Dice&) { link.cut(); }, at_once),
        of_link(
            "reset", [](Proxy& link, Dice&) { link.reset(); }, at_once),
        of_link("half-close",
                [](Proxy& link, Dice& dice) {
                    link.half_close(dice.percent(50) ? Way::requests : Way::replies);
                }),
    };
}

Fault freeze_client(Range duration) {
    return {"freeze client", Victim::client, FaultClass::inside, duration,
            [](Laboratory& laboratory, const Attack& attack, Dice&) -> End {
                ChildProcess& client = *laboratory.station(attack.station).client;
                client.freeze();
                return [&client] { client.thaw(); };
            }};
}

/// It is stopped for longer than short leases last, again and again, and runs for moments between.
End stop_and_go(Laboratory& laboratory, const Attack& attack, Dice& dice) {
    ChildProcess& client = *laboratory.station(attack.station).client;
    auto run = [&client, seed = dice.between(0, 1'000'000)](const std::stop_token& over) {
        Dice own{static_cast<std::uint64_t>(seed)};
        while (!over.stop_requested()) {
            client.freeze();
            std::this_thread::sleep_for(milliseconds{own.between(15, 70)});
            client.thaw();
            std::this_thread::sleep_for(milliseconds{own.between(2, 15)});
        }
    };
    const auto stopper = std::make_shared<std::jthread>(run);
    return [stopper] {
        stopper->request_stop();
        stopper->join();
    };
}

std::vector<Fault> faults_of_clients() {
    return {
        freeze_client(short_time),
        freeze_client(a_while),
        freeze_client(up_to_some_leases),
        {"stop and go", Victim::client, FaultClass::inside, up_to_some_leases, stop_and_go},
        {"close client", Victim::client, FaultClass::inside, a_while,
         [](Laboratory& laboratory, const Attack& attack, Dice&) -> End {
             static constexpr milliseconds limit{20'000};
             Station& station = laboratory.station(attack.station);
             station.client->write_line("stop");
             return [&laboratory, &station] { laboratory.replace_client(station, limit); };
         }},
        {"kill client", Victim::client, FaultClass::inside, at_once,
         [](Laboratory& laboratory, const Attack& attack, Dice&) -> End {
             Station& station = laboratory.station(attack.station);
             station.client->kill();
             station.client->wait();
             laboratory.start_client(station);
             return {};
         }},
    };
}

/// Takes the server away and brings it back.
template <class Stop>
Fault restart(const char* name, FaultClass of_class, Stop stop) {
    return {name, Victim::server, of_class, short_time,
            [stop](Laboratory& laboratory, const Attack& attack, Dice&) -> End {
                RedisServer& server = laboratory.server(attack.server);
                stop(server);
                return [&server] { server.start(); };
            }};
}

/// A script that runs until it is killed: everybody else gets BUSY.
End begin_long_script(Laboratory& laboratory, const Attack& attack, Dice&) {
    auto killer = std::make_shared<RawRedis>(laboratory.server_side(attack.server));
    auto caller = std::make_shared<RawRedis>(laboratory.server_side(attack.server));
    auto script = std::make_shared<std::future<RawReply>>(in_background([caller] {
        return caller->command({"EVAL", "while true do end", "0"});
    }));
    return [killer, script] {
        // It cannot be killed before it has begun.
        while (script->wait_for(milliseconds{1}) != std::future_status::ready) {
            killer->command({"SCRIPT", "KILL"});
        }
        script->get();
    };
}

End step_clock(Laboratory& laboratory, const Attack&, Dice& dice) {
    laboratory.clock().set(milliseconds{dice.between(-2000, 2000)});
    return [&laboratory] { laboratory.clock().set(milliseconds{0}); };
}

std::vector<Fault> faults_of_the_server() {
    using enum FaultClass;
    return {
        {"freeze server", Victim::server, inside, a_while,
         [](Laboratory& laboratory, const Attack& attack, Dice&) -> End {
             RedisServer& server = laboratory.server(attack.server);
             server.freeze();
             return [&server] { server.thaw(); };
         }},
        {"freeze server for long", Victim::server, inside, long_time,
         [](Laboratory& laboratory, const Attack& attack, Dice&) -> End {
             RedisServer& server = laboratory.server(attack.server);
             server.freeze();
             return [&server] { server.thaw(); };
         }},
        restart("kill server", inside, [](RedisServer& server) { server.kill(); }),
        restart("stop server", inside, [](RedisServer& server) { server.stop(); }),
        of_server("kill connections", {"CLIENT", "KILL", "TYPE", "normal"}, {}, at_once),
        of_server("kill subscriptions", {"CLIENT", "KILL", "TYPE", "pubsub"}, {}, at_once),
        paused("pause writes", "WRITE"),
        paused("pause all", "ALL"),
        of_server("forget scripts", {"SCRIPT", "FLUSH"}, {}, at_once),
        {"long script", Victim::server, inside, a_while, begin_long_script},
        of_server("out of memory", {"CONFIG", "SET", "maxmemory", "1"},
                  {"CONFIG", "SET", "maxmemory", "0"}),
        denied("deny PUBLISH", "-publish"),
        denied("deny SUBSCRIBE", "-subscribe"),
        denied("deny PUBSUB", "-pubsub"),
        denied("deny EVALSHA", "-evalsha"),
        denied("deny SET", "-set"),

        restart("kill server and its data", outside,
                [](RedisServer& server) {
                    server.kill();
                    server.forget_data();
                }),
        of_server("flush", {"FLUSHALL"}, {}, at_once, outside),
        {"step clock", Victim::server, outside, up_to_some_leases, step_clock},
        {"evict", Victim::server, outside, short_time,
         [](Laboratory& laboratory, const Attack& attack, Dice&) -> End {
             RawRedis redis = laboratory.server_side(attack.server);
             redis.command({"CONFIG", "SET", "maxmemory-policy", "allkeys-random"});
             redis.command({"CONFIG", "SET", "maxmemory", "1"});
             return [&laboratory, number = attack.server] {
                 RawRedis again = laboratory.server_side(number);
                 again.command({"CONFIG", "SET", "maxmemory", "0"});
                 again.command({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
             };
         }},
    };
}

}  // namespace

const std::vector<Fault>& all_faults() {
    static const std::vector<Fault> faults = [] {
        std::vector<Fault> all = faults_of_links();
        for (Fault& fault : faults_of_clients()) all.push_back(std::move(fault));
        for (Fault& fault : faults_of_the_server()) all.push_back(std::move(fault));
        return all;
    }();
    return faults;
}

}  // namespace redlatch::test::fault
