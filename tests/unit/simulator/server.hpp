#pragma once

#include "command.hpp"
#include "coverage.hpp"
#include "nodes.hpp"
#include "replication.hpp"
#include "support/model_redis.hpp"
#include <redlatch/policy/lock_keys.hpp>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

inline constexpr std::size_t most_processes = 4;
inline constexpr std::size_t most_locks = 2;

/// The names of what is in a schedule.
inline std::string client_id(int process) {
    return std::string(32, static_cast<char>('a' + process));
}
inline int process_of(std::string_view token) {
    return token.front() - 'a';
}
inline std::string channel_of(int process) {
    return "redlatch:client:" + client_id(process);
}

/// The locks of a schedule: their names, and those of their companions.
class Names {
public:
    static const Names& get() {
        static const Names names;
        return names;
    }
    const std::shared_ptr<const detail::LockKeys>& of(int lock) const {
        return keys_[static_cast<std::size_t>(lock)];
    }
    int lock_of(std::string_view name) const { return name == keys_[0]->lock ? 0 : 1; }

private:
    std::array<std::shared_ptr<const detail::LockKeys>, most_locks> keys_{
        std::make_shared<const detail::LockKeys>("job"),
        std::make_shared<const detail::LockKeys>("{job}:2")};
};

/// One master, and what of it the checker sees.
class Server {
public:
    /// Who has a lock, and until when if nothing happens.
    struct Owner {
        std::string token{};  ///< empty for nobody
        Moment end{0};
        std::int64_t weight = 0;  ///< of its claim
    };

    Server(const Plan& plan, const Timeline& timeline, ModelRedis& redis, int number)
        : plan_(&plan),
          timeline_(&timeline),
          redis_(&redis),
          scripts_(&Scripts::of(plan)),
          replication_(plan, timeline),
          nodes_(plan, timeline, number),
          on_hash_(plan.on_hash),
          one_queue_(plan.mutant == Mutant::shared_queue),
          number_(number),
          start_us_(1'700'000'000'000'000 + static_cast<std::int64_t>(plan.noise % 1000) +
                    plan.server_clocks[static_cast<std::size_t>(number)].count()) {
        for (const Trouble& trouble : plan.troubles) {
            const bool promotes = trouble.kind == Trouble::Kind::promotion;
            if (!promotes) continue;
            last_promotion_ = std::max(last_promotion_, trouble.when + plan.nodes.outage);
        }
        redis.flush();
        subscribed_at_.fill(nobody);
        follow();
    }

    const Scripts& scripts() const { return *scripts_; }

    // ---- Commands

    /// By the ACL of who sends it.
    ModelRedis::Value run(const Command& command) {
        follow();
        const std::uint64_t before = redis_->writes();
        redis_->set_slot_leaves(is_between_servers(command));
        redis_->set_full(timeline_->now() < full_until_);
        ModelRedis::Value value = run_by_acl(command);
        redis_->set_full(false);
        if (value.is_error() && value.text.starts_with("OOM ")) refusals().took("full", 0);
        redis_->set_slot_leaves(false);
        if (plan_->replicas > 0 && redis_->writes() != before) {
            replication_.written(timeline_->now() <= last_promotion_ ? redis_->snapshot()
                                                                     : nullptr);
        }
        return value;
    }

    // ---- What there is

    /// All who have it.
    using Owners = std::vector<Owner>;

    Owners owners(int lock) {
        follow();
        const std::string& name = Names::get().of(lock)->lock;
        return plan_->has_claims() ? claims(name) : owner(name);
    }

    /// Empty for one who has not got it.
    static Owner find(const Owners& owners, std::string_view token) {
        const auto at = std::ranges::find(owners, token, &Owner::token);
        return at == owners.end() ? Owner{} : *at;
    }
    /// Who waits for a lock, the first in front.
    std::vector<std::string> queue(int lock) {
        follow();
        const std::array<std::string_view, 4> range{"ZRANGE", Names::get().of(lock)->queue, "0",
                                                    "-1"};
        const auto value = redis_->command(std::span<const std::string_view>{range});
        std::vector<std::string> tokens;
        for (const auto& element : value.elements) tokens.push_back(element.text);
        return tokens;
    }

    /// How many permits somebody has set.
    struct Setting {
        std::int64_t permits;
        std::int64_t issued;
    };
    std::optional<Setting> setting(int lock) {
        follow();
        read_[0] = "GET";
        read_[1] = Names::get().of(lock)->permits;
        const auto value = redis_->command(std::span<const std::string_view>{read_});
        if (value.is_nil()) return std::nullopt;
        const std::size_t space = value.text.find(' ');
        return Setting{std::stoll(value.text), std::stoll(value.text.substr(space))};
    }

    /// The last fencing token; 0 without one.
    std::uint64_t fence(int lock) {
        follow();
        read_[0] = "GET";
        read_[1] = Names::get().of(lock)->fence;
        const auto value = redis_->command(std::span<const std::string_view>{read_});
        return value.is_nil() ? 0 : std::stoull(value.text);
    }

    std::int64_t ttl(const std::string& key) {
        follow();
        read_[0] = "PTTL";
        read_[1] = key;
        return redis_->command(std::span<const std::string_view>{read_}).integer;
    }

    std::vector<std::string> all_keys() {
        follow();
        return redis_->keys();
    }

    /// `node`: where it listens; nobody where it does not.
    void set_subscribed(int process, int node) {
        subscribed_at_[static_cast<std::size_t>(process)] = node;
        redis_->set_subscribers(channel_of(process), subscribed(process) ? 1 : 0);
    }
    bool subscribed(int process) const {
        return subscribed_at_[static_cast<std::size_t>(process)] == nodes_.serving();
    }
    static constexpr int nobody = -1;

    Replication& replication() { return replication_; }
    const Replication& replication() const { return replication_; }

    // ---- What happens to it

    /// One of its replicas takes over, with what it has got.
    void promote(std::size_t replica, microseconds ahead) {
        const Replication::Keys keys = replication_.promote(replica);
        redis_->flush();
        if (keys != nullptr) redis_->restore(*keys);
        restart(ahead);
    }

    /// Another one takes over.
    void fail_over(bool keeps_keys, microseconds ahead) {
        if (!keeps_keys) forget();
        restart(ahead);
    }
    /// Its keys are gone.
    void forget() {
        redis_->flush();
        forgot_at_ = timeline_->now();
    }
    void step_clock(microseconds ahead) {
        start_us_ += ahead.count();
        if (ahead != microseconds{0}) clock_stepped_at_ = timeline_->now();
        follow();
    }
    /// Its connections are gone, and its scripts. Those of the other nodes too where the clock is another one: in a
    /// schedule all nodes have the same.
    void restart(microseconds ahead = microseconds{0}) {
        step_clock(ahead);
        started_at_ = timeline_->now();
        ++generation_;
        nodes_.restart(nodes_.serving());
        if (ahead == microseconds{0}) return;
        for (int node = 0; node < nodes_.count(); ++node) nodes_.restart(node);
    }
    void load_until(Moment until) { loads_until_ = std::max(loads_until_, until); }
    void be_full_until(Moment until) { full_until_ = std::max(full_until_, until); }
    void be_silent_until(Moment until) { nodes_.be_silent_until(until); }
    /// When node `node` will carry out what arrives now.
    Moment awake_at(int node) const { return nodes_.awake_at(node); }
    Moment awake_at() const { return awake_at(nodes_.serving()); }

    // ---- Its nodes

    const Nodes& nodes() const { return nodes_; }
    Nodes& nodes() { return nodes_; }

    /// Another node serves from now on.
    void serve_at(int node) {
        nodes_.serve(node);
        for (std::size_t i = 0; i < plan_->processes.size(); ++i) {
            set_subscribed(static_cast<int>(i), subscribed_at_[i]);
        }
    }

    /// Has what another one has, and its clock.
    void copy(const Server& other) {
        start_us_ = other.start_us_;
        follow();
        redis_->flush();
        redis_->restore(*other.redis_->snapshot());
    }

    const Migration& migration() const { return migration_; }
    void begin_migration(int target) { migration_.begin(target); }
    void move_keys(Dice& noise) {
        for (const std::string& key : all_keys()) {
            if (!migration_.has_moved(key) && noise.one_in(2)) migration_.move(key);
        }
    }
    void hand_over() { migration_.hand_over(); }
    void end_migration() {
        migration_.end();
        serve_at(migration_.target());
    }

    /// What a node says to a command that it does not carry out; nothing where it does. `asking`: behind ASKING.
    std::optional<std::string> refusal(int node, const Command& command, bool asking) {
        const bool serves = !plan_->has_nodes() || node == nodes_.serving();
        if (serves && timeline_->now() < loads_until_) {
            refusals().took("loading", 0);
            return "LOADING Redis is loading the dataset in memory";
        }
        if (!plan_->has_nodes()) return std::nullopt;
        if (plan_->has_sentinels()) {
            const bool is_master = node == nodes_.serving() && !nodes_.is_down();
            if (is_master || nodes_.lingers(node)) return std::nullopt;
            return "READONLY You can't write against a read only replica.";
        }
        using Phase = Migration::Phase;
        const bool is_target = migration_.phase() != Phase::none && node == migration_.target();
        if (is_target && migration_.phase() == Phase::moving && asking) {
            const Keys keys = count_keys(command, true);
            if (command.keys().size() > 1 && keys.missing > 0) return try_again();
            for (const std::string_view key : command.keys()) migration_.move(std::string{key});
            return std::nullopt;
        }
        if (is_target) return send_on("MOVED ", nodes_.serving());
        if (node == nodes_.serving() && !nodes_.is_down()) {
            if (migration_.phase() == Phase::none) return std::nullopt;
            if (migration_.phase() == Phase::handing_over) {
                return send_on("MOVED ", migration_.target());
            }
            const Keys keys = count_keys(command, false);
            if (keys.missing == 0) return std::nullopt;
            return keys.existing > 0 ? try_again() : send_on("ASK ", migration_.target());
        }
        const int believed = nodes_.believed_by_node(node);
        const bool knows_none = believed == node || (nodes_.is_down() && plan_->nodes.says_down);
        if (knows_none) return "CLUSTERDOWN The cluster is down";
        return send_on("MOVED ", believed);
    }

    std::chrono::seconds uptime() const {
        return std::chrono::floor<std::chrono::seconds>(timeline_->now() - started_at_);
    }
    Moment forgot_at() const { return forgot_at_; }
    Moment clock_stepped_at() const { return clock_stepped_at_; }

    const std::shared_ptr<const std::string>& id() const { return nodes_.id(nodes_.serving()); }
    const std::shared_ptr<const std::string>& id(int node) const { return nodes_.id(node); }
    int number() const { return number_; }
    int generation() const { return generation_; }
    microseconds time() const { return microseconds{start_us_} + timeline_->now() / 1us * 1us; }

private:
    /// A command's keys that a node has, or has not.
    struct Keys {
        int existing = 0;
        int missing = 0;
    };
    Keys count_keys(const Command& command, bool at_target) {
        Keys count;
        for (const std::string_view key : command.keys()) {
            const std::string name{key};
            const bool here = migration_.has_moved(name) == at_target && ttl(name) != -2;
            ++(here ? count.existing : count.missing);
        }
        return count;
    }
    static Coverage::Machine& refusals() {
        static Coverage::Machine machine{"Server", {"refused"}};
        return machine;
    }
    /// Whether it runs where its keys' slot leaves.
    bool is_between_servers(const Command& command) const {
        return migration_.phase() == Migration::Phase::moving && !command.keys().empty() &&
               !migration_.has_moved(command.keys().front());
    }
    static std::string try_again() { return "TRYAGAIN Multiple keys request during rehashing"; }
    static std::string send_on(const char* how, int node) {
        const auto [host, port] = address_of(node);
        return how + std::to_string(detail::slot_of(Names::get().of(0)->lock)) + ' ' + host + ':' +
               std::to_string(port);
    }

    ModelRedis::Value run_by_acl(const Command& command) {
        const auto process = static_cast<std::size_t>(command.process);
        const std::string_view denied = plan_->processes[process].denied;
        if (denied.empty()) return execute(command);
        redis_->deny(denied, true);
        ModelRedis::Value value = execute(command);
        redis_->deny(denied, false);
        return value;
    }

    ModelRedis::Value execute(const Command& command) {
        if (command.script == nullptr)
            return redis_->command(std::span<const std::string_view>{command.words});
        const auto known = static_cast<std::size_t>(command.verb);
        std::bitset<verb_count>& scripts = nodes_.scripts(nodes_.serving());
        if (command.whole) scripts.set(known);
        if (!scripts.test(known)) {
            return ModelRedis::Value::error("NOSCRIPT No matching script. Please use EVAL.");
        }
        if (!one_queue_) {
            return redis_->eval(command.script->source, command.keys(), command.arguments());
        }
        std::vector<std::string_view> keys(command.keys().begin(), command.keys().end());
        for (std::string_view& key : keys) {
            // Longer than a name: the scripts cut that off to find the key space.
            if (key.starts_with("redlatch:queue:")) key = "redlatch:queue:{of all locks}";
            if (key.starts_with("redlatch:waiters:")) key = "redlatch:waiters:{of all locks}";
        }
        return redis_->eval(command.script->source, std::span<const std::string_view>{keys},
                            command.arguments());
    }

    void follow() {
        const std::int64_t now = start_us_ + timeline_->now() / 1us;
        redis_->advance(microseconds{now - redis_->now_us()});
    }

    Owners owner(const std::string& name) {
        read_[0] = on_hash_ ? "HKEYS" : "GET";
        read_[1] = name;
        auto value = redis_->command(std::span<const std::string_view>{read_});
        if (on_hash_ && !value.elements.empty()) value = std::move(value.elements.front());
        if (value.type != ModelRedis::Value::Type::string) return {};
        return {{.token = std::move(value.text), .end = end_of(ttl(name))}};
    }

    /// Each with the end of its lease, or of the key if that is sooner.
    Owners claims(const std::string& name) {
        const Moment end_of_all = end_of(ttl(name));
        const std::array<std::string_view, 5> range{"ZRANGE", name, "1", "-1", "WITHSCORES"};
        const auto value = redis_->command(std::span<const std::string_view>{range});
        Owners owners;
        for (std::size_t i = 0; i < value.elements.size(); i += 2) {
            const std::string& claim = value.elements[i].text;
            const Moment end = microseconds{std::stoll(value.elements[i + 1].text) - start_us_};
            const bool for_ever = end_of_all == Moment::max();
            if (end <= timeline_->now()) continue;
            owners.push_back({claim.substr(claim.find(' ') + 1),
                              for_ever ? end_of_all : std::min(end, end_of_all),
                              std::stoll(claim)});
        }
        return owners;
    }

    /// A key lives through the whole of its last millisecond.
    Moment end_of(std::int64_t ttl) const {
        if (ttl < 0) return Moment::max();
        return microseconds{(redis_->now_us() / 1000 + ttl + 1) * 1000 - start_us_};
    }

    const Plan* plan_;
    const Timeline* timeline_;
    ModelRedis* redis_;
    const Scripts* scripts_;
    Replication replication_;
    Nodes nodes_;
    Migration migration_{};
    Moment last_promotion_{-1h};
    bool on_hash_;
    bool one_queue_;
    int number_;
    std::int64_t start_us_;
    std::array<int, most_processes> subscribed_at_{};
    Moment started_at_{-1h};
    Moment loads_until_{-1h};
    Moment full_until_{-1h};
    Moment forgot_at_{-1h};
    Moment clock_stepped_at_{-1h};
    int generation_ = 0;
    std::array<std::string_view, 2> read_{};
};

}  // namespace redlatch::test::simulator
