#pragma once

#include "harness/process_cpu.hpp"
#include "raw_connection.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"

#include <chrono>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace redlatch::bench {

/// Commands by where they came from.
struct Commands {
    double sent = 0;        ///< by clients
    double in_scripts = 0;  ///< by scripts that clients ran
};

/// Listens to MONITOR and counts commands by name and origin. It slows the server down, so where
/// that matters it listens only before or after what is measured.
class CommandMonitor {
public:
    explicit CommandMonitor(const std::string& uri) : connection_(uri) {
        connection_.command<1>({"MONITOR"});
    }

    /// Counts what comes in this time.
    void listen(std::chrono::milliseconds limit) {
        const auto end = std::chrono::steady_clock::now() + limit;
        for (auto left = limit; left.count() > 0;) {
            if (const auto line = connection_.next(left)) add(line->text());
            left = std::chrono::ceil<std::chrono::milliseconds>(end -
                                                                std::chrono::steady_clock::now());
        }
    }

    const std::map<std::string, Commands>& by_name() const noexcept { return by_name_; }

private:
    /// A line is `1700000000.123456 [0 127.0.0.1:4711] "SET" "key" ...`, with `lua` for the address
    /// of a script.
    void add(const std::string& line) {
        const auto bracket = line.find("] \"");
        if (bracket == std::string::npos) return;
        const auto name = bracket + 3;
        std::string command = line.substr(name, line.find('"', name) - name);
        for (char& c : command) {
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        }
        const bool script = std::string_view{line}.substr(0, bracket).ends_with(" lua");
        Commands& commands = by_name_[command];
        (script ? commands.in_scripts : commands.sent) += 1;
    }

    RawConnection connection_;
    std::map<std::string, Commands> by_name_;
};

/// Counts a server's commands, and its CPU time, between start() and stop().
///
/// Redis has no counter of the commands that clients send: `total_commands_processed` and `INFO
/// commandstats` count those that scripts call as well (7.0.15). So this counts by name, which costs
/// the server nothing, and learns from a moment of MONITOR afterwards which part of each name comes
/// from scripts. For most names that is all or nothing, and the split is exact.
class CommandMeter {
public:
    explicit CommandMeter(test::RedisServer& server) : server_(server), redis_(server) {}

    void start() {
        before_ = calls();
        cpu_before_ = cpu_of_process(server_.pid());
    }

    void stop() {
        cpu_ = cpu_of_process(server_.pid()) - cpu_before_;
        counted_ = calls();
        for (const auto& [name, count] : before_) counted_[name] -= count;
    }

    /// To be called while they go on with what they did between start() and stop().
    void learn_origins(std::chrono::milliseconds time) {
        CommandMonitor monitor{server_.uri()};
        monitor.listen(time);
        learn_origins(monitor);
    }
    void learn_origins(const CommandMonitor& monitor) { origins_ = monitor.by_name(); }

    /// Names that the moment did not show count as sent by clients.
    Commands commands() const {
        Commands result;
        for (const auto& [name, count] : counted_) {
            const auto origin = origins_.find(name);
            double scripts = 0;
            if (origin != origins_.end()) {
                const Commands& seen = origin->second;
                scripts = count * seen.in_scripts / (seen.in_scripts + seen.sent);
            }
            result.in_scripts += scripts;
            result.sent += count - scripts;
        }
        return result;
    }

    Seconds cpu() const noexcept { return cpu_; }

private:
    /// All but INFO, which is the meter's own. Subcommands count under the command's name.
    std::map<std::string, double> calls() {
        constexpr std::string_view prefix = "cmdstat_";
        constexpr std::string_view field = "calls=";
        std::map<std::string, double> result;
        for (const auto& [key, text] : redis_.info("commandstats")) {
            const std::string name = key.substr(prefix.size(), key.find('|') - prefix.size());
            if (name != "info") result[name] += std::stod(text.substr(field.size()));
        }
        return result;
    }

    test::RedisServer& server_;
    test::RawRedis redis_;
    std::map<std::string, double> before_;
    std::map<std::string, double> counted_;
    std::map<std::string, Commands> origins_;
    Seconds cpu_before_{0};
    Seconds cpu_{0};
};

/// Throws unless the meter is right about a sequence that is known: SET from both sides, commands
/// that only a script called, and BLPOPs that waited, one in vain. Servers of other versions may
/// count otherwise.
inline void check_command_meter(test::RedisServer& server) {
    constexpr std::chrono::milliseconds moment{50};
    constexpr std::chrono::seconds patience{5};
    test::RawRedis redis{server};
    RawConnection waiting{server.uri(), patience};
    const auto sequence = [&] {
        redis.set("check", "1");
        redis.command({"EVAL",
                       "redis.call('GET', KEYS[1]) redis.call('PUBLISH', 'check', '1') "
                       "return redis.call('SET', KEYS[1], '2')",
                       "1", "check"});
        waiting.send<3>({"BLPOP", "check:list", "0"});
        while (redis.info("clients").at("blocked_clients") != "1") {
        }
        redis.command({"RPUSH", "check:list", "1"});
        if (!waiting.next(patience)) throw std::runtime_error{"a BLPOP was not answered"};
        waiting.command<3>({"BLPOP", "check:list", "0.01"});
        redis.del("check");
    };
    CommandMeter meter{server};
    meter.start();
    sequence();
    meter.stop();
    CommandMonitor monitor{server.uri()};
    sequence();
    monitor.listen(moment);
    // Half of the SETs is the script's.
    const Commands& sets = monitor.by_name().at("set");
    meter.learn_origins(monitor);
    const Commands counted = meter.commands();
    if (sets.sent != 1 || sets.in_scripts != 1 || counted.sent != 6 || counted.in_scripts != 3) {
        throw std::runtime_error{"this server counts commands in another way"};
    }
}

}  // namespace redlatch::bench
