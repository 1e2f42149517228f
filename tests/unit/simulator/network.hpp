#pragma once

#include "checker.hpp"
#include "server.hpp"
#include <redlatch/core/fault.hpp>
#include <redlatch/core/server_clock.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/server_error.hpp>

#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// What hiredis would make of an answer.
inline redisReply* to_hiredis(const ModelRedis::Value& value) {
    using Type = ModelRedis::Value::Type;
    auto* const reply = static_cast<redisReply*>(std::calloc(1, sizeof(redisReply)));
    const auto text = [&](int type) {
        reply->type = type;
        reply->len = value.text.size();
        reply->str = static_cast<char*>(std::malloc(value.text.size() + 1));
        std::memcpy(reply->str, value.text.c_str(), value.text.size() + 1);
    };
    switch (value.type) {
        case Type::nil: reply->type = REDIS_REPLY_NIL; break;
        case Type::integer:
            reply->type = REDIS_REPLY_INTEGER;
            reply->integer = value.integer;
            break;
        case Type::string: text(REDIS_REPLY_STRING); break;
        case Type::status: text(REDIS_REPLY_STATUS); break;
        case Type::error: text(REDIS_REPLY_ERROR); break;
        case Type::array:
            reply->type = REDIS_REPLY_ARRAY;
            reply->elements = value.elements.size();
            reply->element = static_cast<redisReply**>(
                std::calloc(std::max<std::size_t>(1, reply->elements), sizeof(redisReply*)));
            for (std::size_t i = 0; i < reply->elements; ++i) {
                reply->element[i] = to_hiredis(value.elements[i]);
            }
            break;
    }
    return reply;
}

/// An answer that is left to whoever uses the connection next.
class LateAnswer {
public:
    /// `about`: whose it is; null where that does not matter. `since`: when it was left.
    LateAnswer(std::function<void(bool)> tell, const void* about, detail::TimePoint since)
        : about_(about), since_(since), tell_(std::move(tell)) {}
    const void* about() const { return about_; }
    detail::TimePoint since() const { return since_; }
    void settle(bool answered) {
        if (tell_) std::exchange(tell_, nullptr)(answered);
    }
    bool settled() const { return tell_ == nullptr; }

private:
    const void* about_;
    detail::TimePoint since_;
    std::function<void(bool)> tell_;
};

/// The way of one client to one master, in order both ways.
struct Connection {
    int master = 0;
    int node = 0;                                 ///< of the master's
    unsigned epoch = 0;                           ///< of a master that Sentinels name
    std::shared_ptr<const std::string> server{};  ///< the run id of whom it leads to
    detail::ServerClock clock{};
    std::bitset<verb_count> scripts{};  ///< that have run on it
    bool alive = true;
    bool reused = false;               ///< it lay idle
    bool fresh = false;                ///< and was not used yet
    std::uint64_t written = 0;         ///< the replication offset of what it has written last
    std::uint64_t written_before = 0;  ///< and of what it had written before that
    bool lost = false;                 ///< nothing comes through any more, and nobody tells
    Moment there{0};                   ///< when the last command arrives
    Moment back{0};                    ///< and its answer
    detail::TimePoint started_by{};    ///< the latest moment at which the server may have started
    std::vector<std::shared_ptr<LateAnswer>> late{};

    /// How many answers are to come that somebody has left; of those about that, unless it is null.
    std::ptrdiff_t left(const void* about = nullptr) const {
        return std::ranges::count_if(late, [about](const auto& answer) {
            return !answer->settled() && (about == nullptr || answer->about() == about);
        });
    }
    /// The number of what it leads to: several masters have one node each.
    int place() const { return master + node; }

    /// When the first of them was left.
    detail::TimePoint left_since() const {
        const auto first =
            std::ranges::find_if(late, [](const auto& answer) { return !answer->settled(); });
        return first == late.end() ? detail::TimePoint::max() : (*first)->since();
    }

    void close() {
        alive = false;
        for (const auto& answer : std::exchange(late, {})) answer->settle(false);
    }
};

/// What comes back for one command: an answer, or the end of the connection.
struct Arrived {
    std::optional<ModelRedis::Value> value{};
    bool maybe_executed = false;  ///< where the connection has ended
};
using OnArrival = std::function<void(Arrived)>;

/// Carries commands to the masters, and answers and messages back, with all that can go wrong there.
class Network {
public:
    Network(const Plan& plan, Timeline& timeline, Trace& trace,
            std::vector<std::unique_ptr<Server>>& servers, Checker& checker)
        : plan_(&plan),
          timeline_(&timeline),
          trace_(&trace),
          servers_(&servers),
          checker_(&checker) {}

    Server& server(int master) { return *(*servers_)[static_cast<std::size_t>(master)]; }

    /// Where commands go to a master that another one has taken over from, and that has not noticed.
    void deposed(Server* old) { deposed_ = old; }

    Moment latency(Dice& noise) { return noise.span(10us, plan_->latency); }
    bool fault(Dice& noise, int one_in) {
        return timeline_->now() < plan_->faults_until && noise.one_in(one_in);
    }

    /// A new connection to a master, or a node of the only one; null where there is none.
    std::shared_ptr<Connection> connect(Host& host, Dice& noise, int place) {
        const int master = plan_->has_several_masters() ? place : 0;
        const int node = place - master;
        Server& there = server(master);
        if (!there.nodes().is_there(node)) return nullptr;
        if (fault(noise, plan_->rates.refused) || there.awake_at(node) > timeline_->now()) {
            checker_->disturbed(there.awake_at(node));
            return nullptr;
        }
        auto connection = std::make_shared<Connection>();
        connection->master = master;
        connection->node = node;
        connection->server = there.id(node);
        // By an answer to its first command, which tells the time.
        const Moment way = latency(noise);
        connection->clock.answered(host.clock() - way, there.time(), host.clock() + way);
        connection->started_by = host.clock() + 1s - there.uptime();
        return connection;
    }

    /// Sends what `call` is on a connection that is alive. `arrived` is called once, or never.
    void send(Host& host, Dice& noise, const std::shared_ptr<Connection>& connection,
              const detail::Call& call, const detail::EncodeOptions& options, int process,
              Moment too_late, OnArrival arrived, bool asking = false) {
        Server& there = server(connection->master);
        auto made = parse(call.wire(options), there.scripts());
        made->lock = Names::get().lock_of(call.key());
        made->process = process;
        made->master = connection->master;
        made->node = connection->node;
        made->asking = asking;
        made->server = connection->server;
        made->too_late = too_late;
        const std::shared_ptr<const Command> command = std::move(made);
        checker_->sent(*command);
        const Moment now = timeline_->now();
        if (fault(noise, plan_->rates.doubled)) {
            checker_->doubled();
            carry_out_late(noise, command);
        }
        if (connection->reused && fault(noise, plan_->rates.repeated)) {
            // The other end had closed it, or somebody between: what was sent may be on its way.
            if (noise.one_in(2)) carry_out_late(noise, command);
            connection->close();
            host.later(now + latency(noise),
                       [arrived = std::move(arrived)] { arrived({.maybe_executed = true}); });
            return;
        }
        deliver(host, noise, connection, command, std::move(arrived));
    }

    /// Asks how many replicas are connected, on behalf of a token.
    void count_replicas(Host& host, Dice& noise, const std::shared_ptr<Connection>& connection,
                        const std::string& token, OnArrival arrived) {
        ask(host, noise, connection, std::move(arrived),
            [this, master = connection->master, token](const OnAnswer& answered) {
                const int there = server(master).replication().connected();
                (*trace_)("master ", master, ": has ", there, " replicas");
                checker_->counted(token, there);
                answered(ModelRedis::Value::of(std::int64_t{there}));
            });
    }

    /// WAIT, on behalf of a token: until so many replicas have acknowledged what was written on that
    /// connection, and no longer than `most`.
    void wait(Host& host, Dice& noise, const std::shared_ptr<Connection>& connection, int process,
              const std::string& token, std::int64_t wanted, milliseconds most, OnArrival arrived) {
        ask(host, noise, connection, std::move(arrived),
            [this, connection, process, token, wanted, most](const OnAnswer& answered) {
                if (plan_->processes[static_cast<std::size_t>(process)].denied == "WAIT") {
                    return answered(ModelRedis::Value::error(
                        "NOPERM this user has no permissions to run the 'wait' command"));
                }
                const bool earlier = plan_->mutant == Mutant::earlier_acknowledged;
                const auto offset = earlier ? connection->written_before : connection->written;
                const Moment until = timeline_->now() + most;
                const auto& replication = server(connection->master).replication();
                if (replication.when_acknowledged(offset, wanted) > until) {
                    checker_->disturbed(until);
                }
                await({connection, token, offset, wanted, until, answered});
            });
    }

    /// Asks a node for the map of its Cluster, or a Sentinel for the master, over a connection of its own: `told` is
    /// called with the node that it takes for the master; nothing where the one that is asked cannot be reached. Never,
    /// where that is silent.
    void ask_node(Host& host, Dice& noise, int node, std::function<void(std::optional<int>)> told) {
        const Nodes& nodes = server(0).nodes();
        const bool silent = nodes.awake_at(node) > timeline_->now();
        const bool there = nodes.is_there(node);
        ask_way(host, noise, silent, [&nodes, node, there, told = std::move(told)] {
            told(there ? std::optional{nodes.believed_by_node(node)} : std::nullopt);
        });
    }
    void ask_sentinel(Host& host, Dice& noise, int sentinel, std::function<void(int)> told) {
        const bool silent = deaf_until_[static_cast<std::size_t>(sentinel)] > timeline_->now();
        ask_way(host, noise, silent,
                [&nodes = server(0).nodes(), sentinel, told = std::move(told)] {
                    told(nodes.believed_by_sentinel(sentinel));
                });
    }
    /// What it says of itself.
    bool is_replica(const Connection& connection) {
        const Nodes& nodes = server(connection.master).nodes();
        const bool is_master = connection.node == nodes.serving() && !nodes.is_down();
        return !is_master && !nodes.lingers(connection.node);
    }
    void deafen(int sentinel, Moment until) {
        Moment& deaf = deaf_until_[static_cast<std::size_t>(sentinel)];
        deaf = std::max(deaf, until);
    }

    /// A message from a master, which `hear` gets at `host`.
    void publish(Host& host, Dice& noise, std::string message,
                 std::function<void(std::string)> hear) {
        const Moment now = timeline_->now();
        if (plan_->mutant == Mutant::no_recheck || fault(noise, plan_->rates.message_lost)) {
            (*trace_)("  message lost");
            checker_->message_lost(now);
            return;
        }
        if (fault(noise, plan_->rates.message_doubled)) {
            host.soon(lateness(noise), [hear, message] { hear(message); });
        }
        const bool late = fault(noise, plan_->rates.message_late);
        const Moment arrival = now + (late ? lateness(noise) : latency(noise));
        if (late) checker_->message_lost(arrival);
        host.later(arrival, [hear = std::move(hear), message = std::move(message)]() mutable {
            hear(std::move(message));
        });
    }

private:
    using OnAnswer = std::function<void(ModelRedis::Value)>;

    /// One WAIT that the master has not answered yet.
    struct Awaited {
        std::shared_ptr<Connection> connection;
        std::string token;
        std::uint64_t offset;
        std::int64_t wanted;
        Moment until;
        OnAnswer answered;
    };

    void ask_way(Host& host, Dice& noise, bool silent, std::function<void()> answered) {
        const bool unanswered = fault(noise, plan_->rates.unanswered);
        if (unanswered) checker_->disturbed(timeline_->now());
        if (silent || unanswered) return;
        host.soon(4 * latency(noise), std::move(answered));
    }

    bool leads_to_master(const Connection& connection) {
        return connection.server == server(connection.master).id();
    }

    void await(Awaited wait) {
        Server& master = server(wait.connection->master);
        if (!leads_to_master(*wait.connection)) return wait.answered({});
        const Moment now = timeline_->now();
        Moment next = master.awake_at();
        if (next <= now) {
            const unsigned who = master.replication().acknowledged(wait.offset);
            const std::int64_t count = std::popcount(who);
            const bool enough = count >= wait.wanted;
            if (enough || now >= wait.until) {
                (*trace_)("master ", master.number(), ": ", count, " of ", wait.wanted,
                          " replicas have acknowledged ", tail(wait.token));
                if (enough) checker_->acknowledged(wait.token, who, wait.offset);
                if (!enough) checker_->disturbed(now);
                return wait.answered(ModelRedis::Value::of(count));
            }
            next = std::min(wait.until,
                            master.replication().when_acknowledged(wait.offset, wait.wanted));
        }
        timeline_->at(next, [this, wait = std::move(wait)] { await(wait); });
    }

    /// Has something asked of a master that is no script: `carry_out` answers when it likes, with nil for a
    /// connection that has ended.
    template <class CarryOut>
    void ask(Host& host, Dice& noise, const std::shared_ptr<Connection>& connection,
             OnArrival arrived, CarryOut carry_out) {
        const Moment now = timeline_->now();
        const Moment awake = std::max(now, server(connection->master).awake_at(connection->node));
        const bool lost = connection->lost || fault(noise, plan_->rates.lost);
        const bool unanswered = lost || fault(noise, plan_->rates.unanswered);
        const bool slow = fault(noise, plan_->rates.slow);
        const Moment out =
            std::max(connection->there, awake + (slow ? lateness(noise) : latency(noise)));
        const Moment way = slow ? lateness(noise) : latency(noise);
        if (unanswered || slow || awake > now) checker_->disturbed(out + way);
        if (unanswered) {
            connection->lost = true;
            if (noise.one_in(2)) end(host, connection, out + way, arrived);
        }
        if (lost) return;
        connection->there = out;
        timeline_->at(out, [=, this, &host] {
            const OnAnswer answered = [=, this, &host](ModelRedis::Value value) {
                if (unanswered) return;
                const Moment back = std::max(connection->back, timeline_->now() + way);
                connection->back = back;
                if (value.is_nil()) {
                    checker_->disturbed(back);
                    return end(host, connection, back, arrived);
                }
                host.later(back, [connection, arrived, value = std::move(value)] {
                    if (connection->alive) arrived({.value = value});
                });
            };
            return leads_to_master(*connection) ? carry_out(answered) : answered({});
        });
    }

    /// Anything from a little late to long after everybody has forgotten it.
    Moment lateness(Dice& noise) {
        const Moment most = noise.pick<Moment>(
            {5ms, plan_->command_timeout, 2 * plan_->command_timeout, 2 * plan_->longest_lease});
        return noise.span(0ns, most);
    }

    void deliver(Host& host, Dice& noise, const std::shared_ptr<Connection>& connection,
                 const std::shared_ptr<const Command>& command, OnArrival arrived) {
        const Moment now = timeline_->now();
        Server& there = server(connection->master);
        const bool lost = connection->lost || fault(noise, plan_->rates.lost);
        const bool unanswered = lost || fault(noise, plan_->rates.unanswered);
        const bool slow = fault(noise, plan_->rates.slow);
        const Moment awake = std::max(now, there.awake_at(connection->node));
        const Moment out =
            std::max(connection->there, awake + (slow ? lateness(noise) : latency(noise)));
        const Moment back =
            std::max(connection->back, out + (slow ? lateness(noise) : latency(noise)));
        if (unanswered || slow || awake > now) checker_->disturbed(back);
        if (unanswered) {
            // Silence, or the end of the connection.
            connection->lost = true;
            if (noise.one_in(2)) end(host, connection, back, arrived);
        }
        if (lost) return;
        connection->there = out;
        connection->back = back;
        timeline_->at(out, [this, &host, command, connection, back, unanswered,
                            arrived = std::move(arrived)]() mutable {
            Server& master = server(command->master);
            if (command->server != master.id(command->node)) {
                checker_->disturbed(back);
                return end(host, connection, back, arrived);
            }
            const Replication& replication = master.replication();
            const std::uint64_t before = replication.offset();
            ModelRedis::Value value = answer_of(*command, back);
            // Only what the connection itself has written counts for its WAIT.
            if (replication.offset() != before) {
                connection->written_before =
                    std::exchange(connection->written, replication.offset());
            }
            if (unanswered) return;
            host.later(back, [connection, arrived = std::move(arrived),
                              value = std::move(value)]() mutable {
                if (connection->alive) arrived({.value = std::move(value)});
            });
        });
    }

    void end(Host& host, const std::shared_ptr<Connection>& connection, Moment when,
             const OnArrival& arrived) {
        host.later(when, [connection, arrived] {
            if (!connection->alive) return;
            connection->close();
            arrived({.maybe_executed = true});
        });
    }

    void carry_out_late(Dice& noise, const std::shared_ptr<const Command>& command) {
        const Moment when = timeline_->now() + lateness(noise);
        checker_->disturbed(when);
        timeline_->at(when, [this, command] {
            Server& master = server(command->master);
            if (command->server != master.id(command->node) ||
                master.nodes().lingers(command->node)) {
                return;
            }
            (*trace_)("once more:");
            static_cast<void>(answer_of(*command, timeline_->now()));
        });
    }

    /// Of the node that it has come to.
    ModelRedis::Value answer_of(const Command& command, Moment back) {
        Server& master = server(command.master);
        if (deposed_ != nullptr && master.nodes().lingers(command.node)) {
            (*trace_)("the old master: ", command);
            checker_->went_to_deposed(command);
            checker_->disturbed(back);
            ModelRedis::Value answer = deposed_->run(command);
            checker_->answered_by_deposed(command, answer);
            return answer;
        }
        auto refusal = master.refusal(command.node, command, command.asking);
        if (!refusal) return carry_out(command);
        (*trace_)("node ", command.node, ": ", command, ": ", *refusal);
        return ModelRedis::Value::error(*refusal);
    }

    ModelRedis::Value carry_out(const Command& command) {
        (*trace_)("master ", command.master, ": ", command);
        checker_->before(command);
        ModelRedis::Value value = server(command.master).run(command);
        (*trace_)("  answer ", value);
        checker_->executed(command, value);
        return value;
    }

    const Plan* plan_;
    Timeline* timeline_;
    Trace* trace_;
    std::vector<std::unique_ptr<Server>>* servers_;
    Checker* checker_;
    Server* deposed_ = nullptr;
    std::array<Moment, most_sentinels> deaf_until_{};
};

}  // namespace redlatch::test::simulator
