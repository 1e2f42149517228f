#pragma once

#include "plan.hpp"
#include "verb.hpp"
#include <redlatch/policy/lock_policy.hpp>
#include <redlatch/policy/lua.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// The end of a token, which tells it from others.
inline std::string_view tail(std::string_view token) {
    return token.substr(std::min<std::size_t>(token.size(), 31));
}

/// The library's scripts, as they are or with a mistake.
class Scripts {
public:
    struct Script {
        Verb verb;
        std::string_view sha;
        std::string source;
    };

    static const Scripts& of(const Plan& plan) {
        static std::map<std::tuple<bool, Claims, Mutant>, Scripts> all;
        const std::tuple which{plan.on_hash, plan.claims, plan.mutant};
        const auto at = all.find(which);
        if (at != all.end()) return at->second;
        return all.emplace(which, Scripts{plan}).first->second;
    }

    static const LockScripts& library(const Plan& plan) {
        if (plan.claims == Claims::shared) return lua::on_shared_claims();
        if (plan.claims == Claims::permits) return lua::on_permits();
        return plan.on_hash ? lua::on_hash() : lua::on_string();
    }

    /// By its hash or, where the script is sent whole, by its text.
    const Script* find(std::string_view name) const {
        for (std::size_t i = 0; i < scripts_.size(); ++i) {
            const std::string_view known = name.size() == 40 ? scripts_[i].sha : texts_[i];
            if (known == name) return &scripts_[i];
        }
        return nullptr;
    }

private:
    explicit Scripts(const Plan& plan) {
        const LockScripts& from = library(plan);
        add(Verb::acquire, from.acquire);
        add(Verb::extend, from.extend);
        add(Verb::release, from.release);
        if (!plan.has_claims()) add(Verb::release, from.tombstone);
        add(Verb::move, from.move);
        if (plan.on_hash) add(Verb::nest, from.nest);
        if (plan.claims == Claims::shared) add(Verb::downgrade, from.downgrade);
        add(Verb::inspect, from.inspect);
        add(Verb::force_unlock, from.force_unlock);
        if (plan.claims == Claims::permits) add(Verb::set_permits, from.set_permits);
        if (plan.has_claims()) {
            spoil_claims(plan.claims, plan.mutant);
        } else {
            spoil(plan.on_hash, plan.mutant);
        }
    }

    void add(Verb verb, const redlatch::Script& script) {
        texts_.push_back(script.source());
        scripts_.push_back({verb, script.sha(), std::string{script.source()}});
    }

    void spoil(bool on_hash, Mutant mutant) {
        switch (mutant) {
            case Mutant::lease_shortened:
                patch(Verb::acquire, "local longer = ttl > lease", "local longer = false");
                break;
            case Mutant::plain_delete:
                if (on_hash) {
                    patch(Verb::release, "redis.call('HDEL', lock, token)",
                          "redis.call('DEL', lock)");
                } else {
                    patch(Verb::release, "ours = owner == token", "ours = owner");
                }
                break;
            case Mutant::anyones_extended:
                patch(Verb::extend,
                      on_hash ? "redis.call('HEXISTS', lock, token) == 1"
                              : "redis.call('GET', lock) == token",
                      "redis.call('EXISTS', lock) == 1");
                break;
            case Mutant::fence_without_clock: patch_fence("last + 1"); break;
            case Mutant::fence_without_memory: patch_fence("clock()"); break;
            case Mutant::fence_not_granted:
                for (const Verb verb : {Verb::acquire, Verb::release}) {
                    patch(verb, "fencing_token(false)", "fencing_token(true)");
                }
                break;
            case Mutant::late_commands_run:
                patch(Verb::acquire, "clock() > deadline", "false");
                break;
            case Mutant::failed_script_deletes:
                patch(Verb::release, "return waiter, tonumber(its_lease)",
                      "redis.call('ZADD', queue, 1, 'x') redis.call('ZREM', queue, 'x') "
                      "return waiter, tonumber(its_lease)");
                if (!on_hash) {
                    patch(Verb::release, "and redis.call('GET', lock) == token then", "then");
                } else {
                    patch(Verb::release, "if key_type == 's' and not (done and given)",
                          "if not done and redis.call('DEL', lock) == 1");
                }
                break;
            case Mutant::queue_left_without_end:
                patch(Verb::acquire, "endless and redis.pcall('PEXPIRE', queue, 2 * queue_ttl)",
                      "false");
                patch(Verb::acquire, "leaves = true", "leaves = false");
                break;
            case Mutant::last_come_first_served:
                patch(Verb::acquire, "local score = ", "local score, _ = -now, ");
                break;
            case Mutant::forced_from_another:
                patch(Verb::force_unlock,
                      on_hash ? "redis.call('HEXISTS', lock, token) == 1"
                              : "redis.call('GET', lock) == token",
                      "redis.call('EXISTS', lock) == 1");
                break;
            case Mutant::forced_and_left:
                patch(Verb::force_unlock, "key_type == 'h' or not waiting", "not waiting");
                break;
            case Mutant::deleted_key_served:
                patch(Verb::force_unlock, "key_type == 'h' and redis.pcall('HLEN', lock) ~= 0",
                      "false");
                break;
            default: break;
        }
    }

    void spoil_claims(Claims claims, Mutant mutant) {
        switch (mutant) {
            case Mutant::writer_beside_readers:
                for (const Verb verb : {Verb::acquire, Verb::release}) {
                    patch(verb, "return used == 0", "return used < all");
                }
                break;
            case Mutant::one_too_many:
                for (const Verb verb : {Verb::acquire, Verb::release}) {
                    patch(verb, "used + its_weight <= most", "used + its_weight <= 1 + most");
                }
                break;
            case Mutant::one_at_a_time:
                for (const Verb verb : {Verb::acquire, Verb::release}) {
                    patch(verb, "used + its_weight <= most(its_limit)", "used == 0");
                }
                break;
            case Mutant::overtaken:
                patch(Verb::acquire, "if waiting == 0 and fits(weight, limit)",
                      "if fits(weight, limit)");
                break;
            case Mutant::claim_counted_on:
                patch(Verb::release, "  drop(ours)", "  redis.call('ZREM', lock, ours)");
                break;
            case Mutant::place_keeps_lease:
                patch(Verb::acquire, "waiter == caller and caller_lease or ", "");
                break;
            case Mutant::released_to_nobody:
                patch(Verb::release, "pcall(grant, nil, not forced and token)", "true");
                break;
            case Mutant::forced_from_another:
                patch(Verb::force_unlock, "not foreign and claim_of(token, weight)",
                      "not foreign and redis.call('ZRANGE', lock, 1, 1)[1]");
                break;
            case Mutant::forced_and_left:
                patch(Verb::force_unlock, "  drop(ours)", "  used = used");
                break;
            case Mutant::deleted_key_served:
                for (const Verb verb : {Verb::acquire, Verb::release, Verb::force_unlock}) {
                    patch(verb, "if used == 0 then", "if false then");
                }
                break;
            case Mutant::deleted_key_read:
                patch(Verb::acquire, "queue_ttl >= 0 and redis.call('ZRANK', queue, token)",
                      "redis.call('ZRANK', queue, token)");
                break;
            case Mutant::older_setting_counts:
                patch_setting(claims, "issued > last or value == setting", "true");
                break;
            case Mutant::setting_not_counted_on:
                patch_setting(claims, "used + its_weight <= most", "its_weight <= most");
                break;
            default: break;
        }
    }

    void patch_setting(Claims claims, std::string_view from, std::string_view to) {
        if (claims == Claims::permits) patch(Verb::set_permits, from, to);
    }

    void patch_fence(std::string_view to) {
        constexpr std::string_view rule = "math.max(last + 1, clock())";
        // An acquire has it twice: for itself, and for whom it gives the lock.
        for (const Verb verb : {Verb::acquire, Verb::acquire, Verb::release}) patch(verb, rule, to);
    }

    void patch(Verb verb, std::string_view from, std::string_view to) {
        const auto script = std::ranges::find(scripts_, verb, &Script::verb);
        const auto at = script->source.find(from);
        if (at == std::string::npos) {
            throw std::logic_error{"not in the script: " + std::string{from}};
        }
        script->source.replace(at, from.size(), to);
    }

    std::vector<Script> scripts_;
    std::vector<std::string_view> texts_;
};

/// A command as it went over the wire, and what the checker has to know of it.
struct Command {
    Verb verb = Verb::other;
    const Scripts::Script* script = nullptr;
    std::string bytes{};
    std::vector<std::string_view> words{};  ///< in `bytes`
    std::size_t first_key = 1;
    std::size_t first_argument = 2;
    int lock = 0;
    int process = 0;
    int master = 0;
    int node = 0;                                 ///< of the master's
    bool asking = false;                          ///< behind ASKING
    std::shared_ptr<const std::string> server{};  ///< the run id of whom the connection leads to
    Moment too_late{Moment::max()};  ///< when it must do nothing any more, whatever the clocks say
    bool whole = false;              ///< EVAL, not EVALSHA

    std::span<const std::string_view> keys() const {
        return std::span{words}.subspan(first_key, first_argument - first_key);
    }
    std::span<const std::string_view> arguments() const {
        return std::span{words}.subspan(first_argument);
    }
    /// Empty where it is about nobody's.
    std::string_view token() const { return words[first_argument]; }
    /// To which a move goes.
    std::string_view next_token() const { return words[first_argument + 2]; }

    std::int64_t number(std::size_t argument) const {
        const std::string_view text = words[first_argument + argument];
        std::int64_t value = 0;
        std::from_chars(text.data(), text.data() + text.size(), value);
        return value;
    }

    /// What a set number of permits is, and when it was issued; 0 where that is asked for.
    std::int64_t permits() const { return number(2); }
    std::int64_t issued() const { return number(3); }

    /// How much of a lock with claims it asks for.
    std::int64_t weight() const {
        return verb == Verb::acquire && arguments().size() > 7 ? number(7) : 0;
    }

    /// For the lock.
    bool asks() const { return verb == Verb::set || verb == Verb::acquire; }
    /// Whether readers may go on with a claim; one about the lock's key alone does not ask.
    bool asks_to_join() const {
        return verb == Verb::extend && arguments().size() > 4 && number(4) == 1;
    }
    bool fenced() const { return verb == Verb::acquire && number(6) == 1; }
    bool reads() const { return weight() == detail::ClaimTerms::reader; }
    milliseconds lease() const { return milliseconds{verb == Verb::set ? number(3) : number(1)}; }
    /// How long it wants to keep a place in the queue.
    milliseconds stay() const { return milliseconds{verb == Verb::acquire ? number(2) : 0}; }

    friend std::ostream& operator<<(std::ostream& out, const Command& command) {
        out << verb_names[static_cast<std::size_t>(command.verb)] << ' ' << tail(command.token())
            << " of " << command.lock;
        if (command.asks()) out << " lease " << command.lease().count();
        if (command.stay() != 0ms) out << " stay " << command.stay().count();
        if (command.verb == Verb::move) out << " to " << tail(command.next_token());
        if (command.verb == Verb::nest) out << " count " << command.number(1);
        if (command.verb == Verb::extend) out << " by " << command.number(1);
        if (command.verb == Verb::set_permits) {
            out << ' ' << command.permits() << " issued " << command.issued();
        }
        return out;
    }
};

/// Takes apart what `Call::wire` has put together.
inline std::shared_ptr<Command> parse(std::string wire, const Scripts& scripts) {
    auto made = std::make_shared<Command>();
    Command& command = *made;
    command.bytes = std::move(wire);
    std::string_view bytes = command.bytes;
    const auto number = [&bytes] {
        std::size_t value = 0;
        const auto end = std::from_chars(bytes.data() + 1, bytes.data() + bytes.size(), value).ptr;
        bytes.remove_prefix(static_cast<std::size_t>(end - bytes.data()) + 2);
        return value;
    };
    command.words.resize(number());
    for (std::string_view& word : command.words) {
        const std::size_t size = number();
        word = bytes.substr(0, size);
        bytes.remove_prefix(size + 2);
    }
    if (command.words[0] == "SET") {
        command.verb = Verb::set;
        return made;
    }
    command.whole = command.words[0] == "EVAL";
    command.script = scripts.find(command.words[1]);
    if (command.script == nullptr) {
        throw Violation{"an unknown command: " + std::string{command.words[0]}};
    }
    command.verb = command.script->verb;
    command.first_key = 3;
    command.first_argument = 3U + static_cast<std::size_t>(command.words[2].front() - '0');
    return made;
}

}  // namespace redlatch::test::simulator
