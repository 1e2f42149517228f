#pragma once

#include "command.hpp"
#include "replication.hpp"
#include "support/model_redis.hpp"
#include <redlatch/policy/lock_keys.hpp>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
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
          on_hash_(plan.on_hash),
          one_queue_(plan.mutant == Mutant::shared_queue),
          number_(number),
          start_us_(1'700'000'000'000'000 + static_cast<std::int64_t>(plan.noise % 1000) +
                    plan.server_clocks[static_cast<std::size_t>(number)].count()) {
        for (const Trouble& trouble : plan.troubles) {
            const bool promotes = trouble.kind == Trouble::Kind::promotion;
            if (promotes) last_promotion_ = std::max(last_promotion_, trouble.when);
        }
        redis.flush();
        rename();
        follow();
    }

    const Scripts& scripts() const { return *scripts_; }

    // ---- Commands

    /// By the ACL of who sends it.
    ModelRedis::Value run(const Command& command) {
        follow();
        const std::uint64_t before = redis_->writes();
        ModelRedis::Value value = run_by_acl(command);
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

    void set_subscribed(int process, bool yes) {
        subscribed_[static_cast<std::size_t>(process)] = yes;
        redis_->set_subscribers(channel_of(process), yes ? 1 : 0);
    }
    bool subscribed(int process) const { return subscribed_[static_cast<std::size_t>(process)]; }

    Replication& replication() { return replication_; }
    const Replication& replication() const { return replication_; }

    // ---- What happens to it

    /// One of its replicas takes over, with what it has got.
    void promote(std::size_t replica, microseconds ahead) {
        const Replication::Keys keys = replication_.promote(replica);
        redis_->flush();
        if (keys != nullptr) redis_->restore(*keys);
        step_clock(ahead);
        restart();
    }

    /// Another one takes over.
    void fail_over(bool keeps_keys, microseconds ahead) {
        step_clock(ahead);
        if (!keeps_keys) forget();
        restart();
    }
    /// Its keys are gone.
    void forget() {
        redis_->flush();
        forgot_at_ = timeline_->now();
    }
    void step_clock(microseconds ahead) {
        start_us_ += ahead.count();
        follow();
    }
    /// Its connections are gone, and its scripts.
    void restart() {
        known_scripts_.reset();
        started_at_ = timeline_->now();
        ++generation_;
        rename();
    }
    void be_silent_until(Moment until) { silent_until_ = std::max(silent_until_, until); }
    /// When it will carry out what arrives now.
    Moment awake_at() const { return std::max(silent_until_, timeline_->now()); }

    std::chrono::seconds uptime() const {
        return std::chrono::floor<std::chrono::seconds>(timeline_->now() - started_at_);
    }
    Moment forgot_at() const { return forgot_at_; }

    const std::shared_ptr<const std::string>& id() const { return id_; }
    int number() const { return number_; }
    int generation() const { return generation_; }
    microseconds time() const { return microseconds{start_us_} + timeline_->now() / 1us * 1us; }

private:
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
        if (command.whole) known_scripts_.set(known);
        if (!known_scripts_.test(known)) {
            return ModelRedis::Value::error("NOSCRIPT No matching script. Please use EVAL.");
        }
        if (!one_queue_) {
            return redis_->eval(command.script->source, command.keys(), command.arguments());
        }
        std::vector<std::string_view> keys(command.keys().begin(), command.keys().end());
        for (std::string_view& key : keys) {
            if (key.starts_with("redlatch:queue:")) key = "redlatch:queue:{}";
            if (key.starts_with("redlatch:waiters:")) key = "redlatch:waiters:{}";
        }
        return redis_->eval(command.script->source, std::span<const std::string_view>{keys},
                            command.arguments());
    }

    void rename() {
        id_ = std::make_shared<const std::string>("server" + std::to_string(number_) + "." +
                                                  std::to_string(generation_));
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
    Moment last_promotion_{-1h};
    bool on_hash_;
    bool one_queue_;
    int number_;
    std::int64_t start_us_;
    std::array<bool, most_processes> subscribed_{};
    std::bitset<8> known_scripts_{};
    Moment silent_until_{0};
    Moment started_at_{-1h};
    Moment forgot_at_{-1h};
    int generation_ = 0;
    std::shared_ptr<const std::string> id_{};
    std::array<std::string_view, 2> read_{};
};

}  // namespace redlatch::test::simulator
