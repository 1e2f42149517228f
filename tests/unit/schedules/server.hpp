#pragma once

#include "plan.hpp"
#include "support/model_redis.hpp"
#include <redlatch/policy/lock_keys.hpp>
#include <redlatch/policy/lua.hpp>

#include <array>
#include <map>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test::schedules {

/// What a client asks, as it was when it was sent.
struct Command {
    enum class Kind { set, acquire, extend, release };

    Kind kind;
    int lock;
    std::string token;
    std::shared_ptr<const std::string> server{};  ///< the run id of whom it is sent to
    milliseconds lease{};
    milliseconds stay{};
    bool hears = false;
    bool fenced = false;
    std::int64_t not_after = 0;      ///< by the server's clock
    Moment too_late{Moment::max()};  ///< when it must do nothing any more, whatever the clocks say
    std::uint64_t number = 0;        ///< in the order of sending

    /// For the lock, or a place.
    bool asks() const { return kind == Kind::set || kind == Kind::acquire; }

    friend std::ostream& operator<<(std::ostream& out, const Command& command) {
        constexpr std::array names{"SET ", "acquire ", "extend ", "release "};
        out << names[static_cast<std::size_t>(command.kind)] << command.token.substr(31) << " of "
            << command.lock;
        if (command.asks()) out << " lease " << command.lease.count();
        if (command.stay != 0ms) out << " stay " << command.stay.count();
        return out;
    }
};

/// The library's scripts, with a mistake if one is wanted.
struct Scripts {
    std::string acquire;
    std::string extend;
    std::string release;

    static const Scripts& of(bool on_hash, Bug bug) {
        static std::map<std::pair<bool, Bug>, Scripts> all;
        const auto [at, fresh] = all.try_emplace({on_hash, bug});
        if (fresh) at->second = make(on_hash, bug);
        return at->second;
    }

private:
    static Scripts make(bool on_hash, Bug bug) {
        const LockScripts& scripts = on_hash ? lua::on_hash() : lua::on_string();
        Scripts made{.acquire = std::string{scripts.acquire.source()},
                     .extend = std::string{scripts.extend.source()},
                     .release = std::string{scripts.release.source()}};
        if (bug == Bug::lease_shortened) {
            patch(made.acquire, "local longer = ttl > lease", "local longer = false");
        }
        if (bug == Bug::plain_delete && on_hash) {
            patch(made.release, "redis.call('HDEL', lock, token)", "redis.call('DEL', lock)");
        }
        if (bug == Bug::plain_delete && !on_hash) {
            patch(made.release, "ours = owner == token", "ours = owner");
        }
        if (bug == Bug::anyones_extended) {
            patch(made.extend,
                  on_hash ? "redis.call('HEXISTS', lock, token) == 1"
                          : "redis.call('GET', lock) == token",
                  "redis.call('EXISTS', lock) == 1");
        }
        const std::string_view next_fence = "math.max(last + 1, clock())";
        for (std::string* const script : {&made.acquire, &made.release}) {
            if (bug == Bug::fence_without_clock) patch(*script, next_fence, "last + 1");
            if (bug == Bug::fence_without_memory) patch(*script, next_fence, "clock()");
            if (bug != Bug::fence_not_granted) continue;
            patch(*script, "is_fenced == '1' and fencing_token(false)", "fencing_token(true)");
        }
        if (bug == Bug::late_commands_run) patch(made.acquire, "clock() > deadline", "false");
        if (bug == Bug::last_come_first_served) {
            patch(made.acquire, "math.max(now, (last or 0) + 1)", "-now");
        }
        return made;
    }

    static void patch(std::string& script, std::string_view from, std::string_view to) {
        const auto at = script.find(from);
        if (at == std::string::npos)
            throw std::logic_error{"not in the script: " + std::string{from}};
        script.replace(at, from.size(), to);
    }
};

/// The server, and what of it the checker sees.
class Server {
public:
    /// Who has a lock, and until when if nothing happens.
    struct Owner {
        std::string token{};  ///< empty for nobody
        Moment end{0};
    };

    Server(const Plan& plan, const Timeline& timeline, ModelRedis& redis, Dice& dice)
        : timeline_(&timeline),
          redis_(&redis),
          scripts_(&Scripts::of(plan.on_hash, plan.bug)),
          on_hash_(plan.on_hash),
          start_us_(1'700'000'000'000'000 + dice.between(0, 1000)) {
        redis.flush();
        for (const std::string name : {"job", "{job}:2"}) {
            detail::LockKeys& keys = keys_.emplace_back(name);
            if (plan.bug != Bug::shared_queue) continue;
            keys.queue = "redlatch:queue:{}";
            keys.waiters = "redlatch:waiters:{}";
        }
        follow();
    }

    static std::string client_id(int process) {
        return std::string(32, static_cast<char>('a' + process));
    }
    static int process_of(std::string_view token) { return token.front() - 'a'; }
    static std::string channel(int process) { return "redlatch:client:" + client_id(process); }

    const detail::LockKeys& keys(int lock) const { return keys_[static_cast<std::size_t>(lock)]; }
    int lock_of(std::string_view name) const { return name == keys_[0].lock ? 0 : 1; }

    ModelRedis::Value run(const Command& command) {
        follow();
        const auto& [lock, queue, waiters, fence] = keys(command.lock);
        if (command.kind == Command::Kind::set) {
            return redis_->command(std::array<std::string, 6>{
                "SET", lock, command.token, "NX", "PX", std::to_string(command.lease.count())});
        }
        if (command.kind == Command::Kind::extend) {
            std::vector<std::string> keys{lock};
            if (command.fenced) keys.push_back(fence);
            return redis_->eval(
                scripts_->extend, keys,
                std::array<std::string, 2>{command.token, std::to_string(command.lease.count())});
        }
        const std::array<std::string, 4> keys{lock, queue, waiters, fence};
        if (command.kind == Command::Kind::release) {
            return redis_->eval(scripts_->release, keys,
                                std::array<std::string, 2>{command.token, *command.server});
        }
        return redis_->eval(
            scripts_->acquire, keys,
            std::array<std::string, 7>{
                command.token, std::to_string(command.lease.count()),
                std::to_string(command.stay.count()), command.hears ? "1" : "0", *command.server,
                std::to_string(command.not_after), command.fenced ? "1" : "0"});
    }

    Owner owner(int lock) {
        follow();
        static const std::string read[] = {"GET", "HKEYS", "PTTL"};
        const std::string& name = keys(lock).lock;
        auto value = redis_->command(std::array<std::string, 2>{read[on_hash_ ? 1 : 0], name});
        if (on_hash_ && !value.elements.empty()) value = value.elements.front();
        if (value.type != ModelRedis::Value::Type::string) return {};
        return {value.text, end_of(ttl(name))};
    }

    /// The last fencing token; 0 without one.
    std::uint64_t fence(int lock) {
        follow();
        const auto value = redis_->command(std::array<std::string, 2>{"GET", keys(lock).fence});
        return value.is_nil() ? 0 : std::stoull(value.text);
    }

    std::int64_t ttl(const std::string& key) {
        follow();
        return redis_->command(std::array<std::string, 2>{"PTTL", key}).integer;
    }

    std::vector<std::string> all_keys() {
        follow();
        return redis_->keys();
    }

    void set_subscribed(int process, bool yes) {
        subscribed_[static_cast<std::size_t>(process)] = yes;
        redis_->set_subscribers(channel(process), yes ? 1 : 0);
    }
    bool subscribed(int process) const { return subscribed_[static_cast<std::size_t>(process)]; }

    /// Another one takes over.
    void fail_over(bool keeps_keys, microseconds ahead) {
        start_us_ += ahead.count();
        if (!keeps_keys) redis_->flush();
        id_ = std::make_shared<const std::string>("server" + std::to_string(++generation_));
        follow();
    }
    const std::shared_ptr<const std::string>& id() const { return id_; }

    microseconds time() const { return microseconds{start_us_} + timeline_->now() / 1us * 1us; }
    int generation() const { return generation_; }

private:
    void follow() {
        const std::int64_t now = start_us_ + timeline_->now() / 1us;
        redis_->advance(microseconds{now - redis_->now_us()});
    }

    /// A key lives through the whole of its last millisecond.
    Moment end_of(std::int64_t ttl) const {
        if (ttl < 0) return Moment::max();
        return microseconds{(redis_->now_us() / 1000 + ttl + 1) * 1000 - start_us_};
    }

    const Timeline* timeline_;
    ModelRedis* redis_;
    const Scripts* scripts_;
    bool on_hash_;
    std::int64_t start_us_;
    std::vector<detail::LockKeys> keys_;
    std::array<bool, 4> subscribed_{};
    int generation_ = 0;
    std::shared_ptr<const std::string> id_ = std::make_shared<const std::string>("server0");
};

}  // namespace redlatch::test::schedules
