#pragma once

// Random walks of several clients over the scripts of locks with claims, on a real server whose clock only the
// walk moves. Commands are lost, come late and twice; answers and messages are lost; clients die; somebody
// deletes the key, the memory is full, and a client of the other kind uses the name.

#include "lock_test.hpp"
#include "support/still_clock.hpp"
#include <redlatch/core/grant.hpp>
#include <redlatch/net/server_error.hpp>
#include <redlatch/policy/lua.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace redlatch::test {

/// What a walk is about.
enum class ClaimKind { shared, permits };

/// A bug in the scripts that a walk has to find: in `script`, or in all where that is empty.
struct ScriptBug {
    const char* name;
    const char* script;
    const char* right;
    const char* wrong;
};

class ClaimWalk {
public:
    static constexpr std::int64_t all = 1'000'000'000;

    /// What went wrong.
    struct Violation : std::runtime_error {
        using std::runtime_error::runtime_error;
    };

    explicit ClaimWalk(ClaimKind kind, const ScriptBug* bug = nullptr)
        : kind_(kind),
          scripts_(texts(kind, bug)),
          other_(texts(is_shared() ? ClaimKind::permits : ClaimKind::shared, bug)) {
        if (bug != nullptr && changed_ == 0) throw std::logic_error{"no script has that line"};
        for (auto* texts : {&scripts_, &other_}) {
            for (auto& [name, text] : *texts) text = redis_.command({"SCRIPT", "LOAD", text}).text;
        }
    }

    void run(unsigned seed, int steps) {
        random_.seed(seed);
        redis_.flushall();
        for (Client& client : clients_) {
            if (client.hears) listen(client, false);
        }
        flying_.clear(), to_release_.clear(), holder_of_.clear(), weight_of_.clear();
        dead_.clear(), not_after_.clear(), log_.clear();
        clients_.assign(5, {});
        for (std::size_t i = 0; i < clients_.size(); ++i) {
            clients_[i].id = std::string(31, '0') + std::to_string(i);
            listen(clients_[i], true);
        }
        last_fence_ = last_fence_at_ = setting_issued_ = 0;
        setting_.reset();
        greatest_ = usual_limit;
        full_ = false;
        fenced_ = is_shared() && chance(0.5);
        for (int i = 0; i < steps; ++i) step(false);
        finish();
    }

    const std::string& story() const { return story_ = join(log_); }

private:
    using Words = std::vector<std::string>;
    static constexpr std::int64_t usual_limit = 3;
    static constexpr std::int64_t silence_ms = 30'000;
    static constexpr std::int64_t late_us = 1'050'000;

    struct Claim {
        std::int64_t weight;
        std::int64_t end;
    };

    struct Terms {
        std::int64_t alive_until = 0;
        bool hears = false;
        std::int64_t weight = 0;
        std::int64_t limit = 0;
    };

    /// All that the server has.
    struct State {
        std::map<std::string, Claim> claims;
        std::map<std::string, std::int64_t> sums;  // of each kind
        Words queue;
        std::map<std::string, Terms> terms;
        std::vector<std::int64_t> ttls;
        std::string setting;
        std::int64_t now = 0;
    };

    enum class Stage { trying, waiting, held };

    struct Acquiring {
        std::string token;
        std::int64_t weight;  // with which it began
        std::int64_t mode;    // what the client relies on by now
        std::int64_t limit;
        std::int64_t lease;
        Stage stage = Stage::trying;
        std::int64_t valid_until = 0;
        std::int64_t last_try = 0;
        std::int64_t recheck = 0;
        std::int64_t place = -1;
        std::int64_t fence = 0;
        bool unclear = false;
        bool deleted = false;  // somebody has deleted the key
        Words asked{};         // by the last try
    };

    struct Client {
        std::string id{};
        int acquisitions = 0;
        bool hears = false;
        std::optional<Acquiring> acquiring{};
        std::int64_t dead_until = 0;
    };

    struct Command {
        std::string name;
        Words arguments;
    };

    struct ToRelease {
        std::string token;
        std::int64_t weight;
    };

    bool is_shared() const { return kind_ == ClaimKind::shared; }

    // ---- Chance

    double draw() { return std::uniform_real_distribution<>{}(random_); }
    bool chance(double likelihood) { return draw() < likelihood; }
    std::int64_t between(std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>{least, most}(random_);
    }
    template <class T>
    T one_of(std::initializer_list<T> choices) {
        return *(choices.begin() + between(0, static_cast<std::int64_t>(choices.size()) - 1));
    }

    // ---- The scripts

    std::map<std::string, std::string> texts(ClaimKind kind, const ScriptBug* bug) {
        const LockScripts& scripts =
            kind == ClaimKind::shared ? lua::on_shared_claims() : lua::on_permits();
        std::map<std::string, std::string> texts{
            {"acquire", std::string{scripts.acquire.source()}},
            {"release", std::string{scripts.release.source()}},
            {"extend", std::string{scripts.extend.source()}},
            {"move", std::string{scripts.move.source()}},
        };
        if (kind == ClaimKind::shared) texts["downgrade"] = scripts.downgrade.source();
        if (kind == ClaimKind::permits) texts["set_permits"] = scripts.set_permits.source();
        for (auto& [name, text] : texts) {
            if (bug == nullptr || (*bug->script != '\0' && name != bug->script)) continue;
            const std::size_t at = text.find(bug->right);
            if (at == text.npos) continue;
            text.replace(at, std::string_view{bug->right}.size(), bug->wrong);
            ++changed_;
        }
        return texts;
    }

    static std::string text_of(std::int64_t number) { return std::to_string(number); }

    RawRedis::Command script_call(const std::map<std::string, std::string>& scripts,
                                  const Command& command, bool fence) const {
        const std::string& fourth = fence ? keys_.fence : keys_.permits;
        RawRedis::Command words{
            "EVALSHA", scripts.at(command.name), "4", keys_.lock, keys_.queue, keys_.waiters,
            fourth};
        words.insert(words.end(), command.arguments.begin(), command.arguments.end());
        return words;
    }

    // ---- What the server has

    static constexpr std::size_t looks = 9;

    void append_look(std::vector<RawRedis::Command>& commands) const {
        commands.insert(commands.end(), {{"ZRANGE", keys_.lock, "0", "-1", "WITHSCORES"},
                                         {"ZRANGE", keys_.queue, "0", "-1"},
                                         {"HGETALL", keys_.waiters},
                                         {"PTTL", keys_.lock},
                                         {"PTTL", keys_.queue},
                                         {"PTTL", keys_.waiters},
                                         {"PTTL", keys_.fence},
                                         {"PTTL", keys_.permits},
                                         {"GET", keys_.permits}});
    }

    State read(const RawReply* replies) const {
        State state;
        state.now = clock_.now();
        const auto& members = replies[0].elements;
        for (std::size_t i = 0; i + 1 < members.size(); i += 2) {
            const std::string& member = members[i].text;
            const auto score = static_cast<std::int64_t>(std::stod(members[i + 1].text));
            const std::size_t space = member.find(' ');
            if (space == member.npos) {
                state.sums[member] = -score;
            } else if (!state.claims
                            .insert({member.substr(space + 1),
                                     {std::stoll(member.substr(0, space)), score}})
                            .second) {
                fail("one token has two claims");
            }
        }
        for (const RawReply& waiter : replies[1].elements) state.queue.push_back(waiter.text);
        const auto& terms = replies[2].elements;
        for (std::size_t i = 0; i + 1 < terms.size(); i += 2) {
            std::istringstream words{terms[i + 1].text};
            std::string skipped;
            Terms its;
            words >> skipped >> skipped >> its.alive_until >> its.hears >> skipped >> its.weight >>
                its.limit;
            state.terms[terms[i].text] = its;
        }
        for (int i = 3; i < 8; ++i) state.ttls.push_back(replies[i].integer);
        state.setting = replies[8].text;
        return state;
    }

    State look() {
        std::vector<RawRedis::Command> commands;
        append_look(commands);
        return read(redis_.pipeline(commands).data());
    }

    /// A waiter that has to be served when it is its turn.
    bool lives(const State& state, const std::string& token) const {
        const auto found = state.terms.find(token);
        if (found == state.terms.end()) return false;
        const Terms& terms = found->second;
        if (terms.weight != all && terms.weight > setting_.value_or(terms.limit)) return false;
        return terms.alive_until > state.now && (!terms.hears || holder_of_.at(token)->hears);
    }

    static std::int64_t used(const State& state, std::int64_t now) {
        std::int64_t sum = 0;
        for (const auto& [token, claim] : state.claims) sum += claim.end > now ? claim.weight : 0;
        return sum;
    }

    bool fits(const State& state, const Terms& terms) const {
        const std::int64_t taken = used(state, state.now);
        if (terms.weight == all) return taken == 0;
        return taken + terms.weight <= setting_.value_or(terms.limit);
    }

    /// What has to be true after each script.
    void check(const Command& command, const RawReply& reply, const State& before,
               const State& after) {
        const std::string& name = command.name;
        const bool failed = reply.is_error();
        std::int64_t sum = 0;
        for (const auto& [token, claim] : after.claims) sum += claim.weight;
        if (after.sums.size() > 1) fail("two kinds in one key");
        if ((after.sums.empty() ? 0 : after.sums.begin()->second) != sum) fail("a wrong sum");
        for (const std::int64_t ttl : after.ttls) {
            if (ttl == -1) fail("a key without an end");
        }
        if (after.queue.size() != after.terms.size()) fail("a queue without its terms");
        const bool foreign =
            !after.sums.empty() && !after.sums.contains(is_shared() ? "shared" : "permits");
        if (foreign) return;

        std::set<std::string> live;
        bool writer = false;
        for (const auto& [token, claim] : after.claims) {
            if (claim.end <= after.now) continue;
            live.insert(token);
            writer = writer || claim.weight == all;
            if (after.ttls[0] * 1000 + 2000 < claim.end - after.now)
                fail("the key ends before a claim");
        }
        if (writer && live.size() > 1) fail("a writer that is not alone");
        for (const std::string& token : after.queue) {
            if (!after.terms.contains(token)) fail("a place without terms");
            if (live.contains(token)) fail("who waits for what it has");
        }
        for (const auto& [token, claim] : before.claims) {
            const auto now = after.claims.find(token);
            if (now != after.claims.end() && now->second.end < claim.end - 1) fail("shortened");
        }
        if (name == "release" && !failed && after.now > not_after_[command.arguments[0]]) {
            dead_.insert(command.arguments[0]);
        }
        for (const std::string& token : dead_) {
            if (after.claims.contains(token) || after.terms.contains(token))
                fail("a dead token is back");
        }
        check_new_claims(command, failed, before, after, live);
        if (!failed) check_answer(command, reply, after);
        // An extension or a move serves others where it has thrown out what they waited for.
        const bool serves =
            (name != "move" && name != "extend") ||
            std::any_of(before.claims.begin(), before.claims.end(), [&](const auto& claim) {
                return claim.second.end <= before.now && !after.claims.contains(claim.first);
            });
        if (!failed && serves) check_nobody_forgotten(command, after);
    }

    void check_new_claims(const Command& command, bool failed, const State& before,
                          const State& after, const std::set<std::string>& live) {
        const std::string& name = command.name;
        const std::string moved = name == "move" ? command.arguments[2] : "";
        for (const std::string& token : live) {
            const auto had = before.claims.find(token);
            if (had != before.claims.end() && had->second.end > before.now) continue;
            if (failed) fail("an error that lets somebody in");
            if (name == "extend" && token == command.arguments[0]) fail("an extension that takes");
            if (token == moved) continue;
            const bool waited = before.terms.contains(token);
            for (const std::string& other : before.queue) {
                if (other == token) break;
                if (after.terms.contains(other) && lives(before, other)) {
                    fail(waited ? "overtaken in the queue" : "overtaken by a newcomer");
                }
            }
        }
        if (!is_shared() && !failed && name != "move") {
            std::int64_t limit = setting_.value_or(usual_limit);
            const std::int64_t taken = used(after, after.now);
            if (taken > limit && taken > used(before, after.now)) fail("more than there are");
        }
    }

    void check_answer(const Command& command, const RawReply& reply, const State& after) {
        const Words& arguments = command.arguments;
        if (command.name == "set_permits") {
            const std::int64_t issued = std::stoll(arguments[3]);
            if (issued == 0) return;
            if ((reply.integer == 1) != (issued >= setting_issued_))
                fail("an older setting counts");
            if (after.setting != text_of(*setting_) + " " + text_of(setting_issued_)) {
                fail("another setting");
            }
        }
        const bool yes =
            reply.elements.empty() ? reply.integer == 1 : reply.elements[0].integer == 1;
        if (!yes || extends_nothing(command, reply)) return;
        if (command.name == "extend" && arguments[3] == "1" && is_shared() &&
            after.claims.at(arguments[0]).weight != 1) {
            fail("a reader that is a writer at the server");
        }
        const bool keeps = command.name == "extend" || command.name == "acquire";
        const std::int64_t ttl = after.ttls[4];
        if (keeps && ttl >= 0 && ttl < 86'400'000 + std::stoll(arguments[1])) {
            fail("a setting in use is forgotten too soon");
        }
    }

    /// A question where others wait.
    static bool extends_nothing(const Command& command, const RawReply& reply) {
        return command.name == "extend" && reply.elements.size() == 2 &&
               reply.elements[1].integer > 0;
    }

    /// Whoever is first and fits in has been let in.
    void check_nobody_forgotten(const Command& command, const State& after) {
        for (const std::string& token : after.queue) {
            if (command.name == "acquire" && token == command.arguments[0]) return;
            if (!lives(after, token)) continue;
            if (fits(after, after.terms.at(token))) fail("the first one fits in and still waits");
            return;
        }
    }

    /// What the clients believe.
    void check_beliefs() {
        std::int64_t sum = 0;
        int holders = 0;
        bool writer = false;
        std::set<std::int64_t> fences;
        for (const Client& client : clients_) {
            const auto& mine = client.acquiring;
            if (!mine || mine->stage != Stage::held || mine->deleted) continue;
            if (mine->valid_until <= clock_.now()) continue;
            ++holders;
            sum += mine->mode;
            writer = writer || mine->mode == all;
            if (fenced_) fences.insert(mine->fence);
        }
        if (writer && holders > 1) fail("a writer believes that it is alone, and is not");
        if (fences.size() > 1) fail("readers with different fencing tokens");
        if (!is_shared() && sum > std::max(greatest_, usual_limit)) fail("too many have permits");
    }

    // ---- The network

    RawReply execute(const Command& command) {
        clock_.advance(std::chrono::microseconds{300});
        std::vector<RawRedis::Command> commands;
        append_look(commands);
        commands.push_back(script_call(scripts_, command, is_shared()));
        append_look(commands);
        const auto replies = redis_.pipeline(commands);
        const State before = read(replies.data());
        RawReply reply = replies[looks];
        const State after = read(replies.data() + looks + 1);
        note(command, reply);
        if (command.name == "set_permits" && !reply.is_error() && command.arguments[3] != "0") {
            heed_setting(command);
        }
        if (before.setting.empty() && command.name != "set_permits") setting_.reset();
        check_error(command, reply);
        check(command, reply, before, after);
        return reply;
    }

    void heed_setting(const Command& command) {
        const std::int64_t issued = std::stoll(command.arguments[3]);
        if (issued < setting_issued_) return;
        setting_issued_ = issued;
        setting_ = std::stoll(command.arguments[2]);
        greatest_ = std::max(greatest_, *setting_);
    }

    void check_error(const Command& command, const RawReply& reply) {
        if (!reply.is_error() || reply.text.starts_with("LATE")) return;
        const bool may_want_memory = command.name == "acquire" || command.name == "set_permits";
        if (detail::plain_words(reply.text).starts_with("OOM") && full_ && may_want_memory) return;
        if (reply.text.starts_with("WRONGTYPE")) return;
        fail("an error: " + reply.text);
    }

    /// Nothing where there is no answer. A copy may come later.
    std::optional<RawReply> send(const Command& command, bool surely = false) {
        const double luck = surely ? 1.0 : draw();
        if (luck < 0.05) return std::nullopt;
        if (luck < 0.12) {
            flying_.insert({clock_.now() + between(0, 4'000'000), command});
            return std::nullopt;
        }
        RawReply reply = execute(command);
        if (luck < 0.20) flying_.insert({clock_.now() + between(0, 4'000'000), command});
        if (luck < 0.28) return std::nullopt;
        return reply;
    }

    // ---- The clients

    void listen(Client& client, bool hears) {
        drain_messages();
        subscriber_.command({hears ? "SUBSCRIBE" : "UNSUBSCRIBE", "redlatch:client:" + client.id});
        client.hears = hears;
    }

    void ask(Client& client, std::int64_t stay, bool surely = false) {
        Acquiring& mine = *client.acquiring;
        const std::int64_t sent = clock_.now();
        mine.last_try = sent;
        // The place has passed on to another one of the client, who wants another lease.
        const bool is_passed_on = mine.stage == Stage::waiting && chance(stay < 0 ? 0.7 : 0.1);
        if (is_passed_on) mine.lease = one_of({200, 1000, 3000});
        not_after_[mine.token] = sent + late_us;
        mine.asked = {mine.token,
                      text_of(mine.lease),
                      text_of(stay),
                      client.hears ? "1" : "0",
                      "run",
                      text_of(sent + late_us),
                      fenced_ ? "1" : "0",
                      text_of(mine.weight),
                      text_of(mine.limit)};
        const auto reply = send({"acquire", mine.asked}, surely);
        if (!reply || reply->is_error()) {
            mine.unclear = true;
        } else if (reply->elements.at(0).integer == 1) {
            got(mine, sent, mine.lease, reply->elements.at(4).integer);
            const State state = look();
            const auto claim = state.claims.find(mine.token);
            if (claim == state.claims.end() || claim->second.end < mine.valid_until) {
                fail("a client relies on its claim for longer than the server keeps it");
            }
        } else {
            mine.place = reply->elements.at(2).integer;
            mine.stage = Stage::waiting;
            mine.recheck = clock_.now() + between(100'000, 2'000'000);
        }
    }

    void got(Acquiring& mine, std::int64_t since, std::int64_t lease, std::int64_t fence) {
        mine.stage = Stage::held;
        mine.valid_until = since + lease * 990 - 2000;
        if (fenced_) {
            if (fence == 0) fail("no fencing token");
            if (mine.fence != 0 && fence != mine.fence) fail("another fencing token");
            // It may be heard of late.
            if (mine.fence == 0 && since > last_fence_at_) {
                if (fence < last_fence_) fail("a fencing token below the last writer's");
                if (mine.weight == all && fence == last_fence_) {
                    fail("a fencing token that repeats");
                }
            }
            if (mine.weight == all && fence > last_fence_) {
                last_fence_ = fence;
                last_fence_at_ = clock_.now();
            }
            mine.fence = fence;
        }
        check_beliefs();
    }

    void give_up(Client& client) {
        const Acquiring mine = *std::exchange(client.acquiring, std::nullopt);
        const auto reply = send({"release", {mine.token, "run", text_of(mine.weight)}});
        if (!reply || reply->is_error()) release_at(clock_.now() + between(0, 500'000), mine);
        if (mine.unclear) release_at(mine.last_try + late_us + 51'000, mine);
    }
    void release_at(std::int64_t time, const Acquiring& mine) {
        to_release_.insert({time, {mine.token, mine.weight}});
    }

    void drain_messages() {
        RawReply reply = subscriber_.command({"PING"});  // what is said until it is answered
        while (!reply.elements.empty() && reply.elements[0].text == "message") {
            hear(reply.elements.at(2).text);
            reply = subscriber_.next();
        }
    }

    void hear(const std::string& text) {
        const auto grant = detail::parse_grant(text);
        if (!grant || grant->key != keys_.lock) fail("a message: " + text);
        if (chance(0.1)) return;
        Client& client = *holder_of_.at(grant->token);
        if (client.dead_until > clock_.now()) return;
        auto& mine = client.acquiring;
        if (!mine || mine->token != grant->token) {
            to_release_.insert({clock_.now(), {grant->token, weight_of_.at(grant->token)}});
        } else if (mine->stage != Stage::held) {
            got(*mine, grant->time.count(), grant->ttl.count(),
                static_cast<std::int64_t>(grant->fence));
        }
    }

    /// What is on its way arrives.
    void deliver() {
        drain_messages();
        while (!flying_.empty() && flying_.begin()->first <= clock_.now()) {
            execute(flying_.extract(flying_.begin()).mapped());
        }
        while (!to_release_.empty() && to_release_.begin()->first <= clock_.now()) {
            const ToRelease due = to_release_.extract(to_release_.begin()).mapped();
            const auto reply = execute({"release", {due.token, "run", text_of(due.weight)}});
            if (reply.is_error()) to_release_.insert({clock_.now() + 500'000, due});
        }
    }

    void step(bool quiet) {
        deliver();
        const double luck = draw();
        if (luck < 0.3) {
            clock_.advance(one_of({1ms, 10ms, 50ms, 200ms, 500ms}));
        } else if (luck < 0.31 && !quiet) {
            clock_.advance(one_of({2s, 5s, 31s}));
        }
        if (!quiet) disturb();
        Client& client = clients_[static_cast<std::size_t>(between(0, 4))];
        if (client.dead_until > clock_.now()) return;
        if (!client.hears && chance(0.3)) listen(client, true);
        if (!client.acquiring) {
            if (!quiet) begin(client);
        } else if (client.acquiring->stage == Stage::trying) {
            chance(0.8) ? ask(client, silence_ms) : give_up(client);
        } else if (client.acquiring->stage == Stage::waiting) {
            wait(client, quiet);
        } else {
            hold(client, quiet);
        }
        if (!quiet && client.hears && chance(0.01)) listen(client, false);
        check_beliefs();
    }

    void begin(Client& client) {
        const bool writes = is_shared() && chance(0.33);
        const std::int64_t weight = writes ? all : is_shared() ? 1 : one_of({1, 1, 1, 2, 3});
        client.acquiring = {.token = new_token(client, weight),
                            .weight = weight,
                            .mode = weight,
                            .limit = is_shared() ? all - 1 : usual_limit,
                            .lease = one_of({200, 1000, 3000})};
        ask(client, one_of({silence_ms, silence_ms, std::int64_t{0}}));
    }

    std::string new_token(Client& client, std::int64_t weight) {
        std::string token = client.id + ":t:1:" + std::to_string(++client.acquisitions);
        holder_of_[token] = &client;
        weight_of_[token] = weight;
        return token;
    }

    void wait(Client& client, bool quiet) {
        Acquiring& mine = *client.acquiring;
        if (!quiet && chance(0.03)) {
            die(client, 40'000'000, 0.7);
        } else if (!quiet && chance(0.06)) {
            if (chance(0.7)) ask(client, -1);
            if (mine.stage != Stage::held) give_up(client);
        } else if (clock_.now() >= mine.recheck || mine.place < 0) {
            ask(client, silence_ms, quiet);
        }
    }

    void die(Client& client, std::int64_t for_us, double falls_silent) {
        client.acquiring.reset();
        client.dead_until = clock_.now() + for_us;
        if (client.hears && chance(falls_silent)) listen(client, false);
    }

    void hold(Client& client, bool quiet) {
        Acquiring& mine = *client.acquiring;
        const double luck = draw();
        if (clock_.now() >= mine.valid_until) {
            give_up(client);
        } else if (luck < 0.05 && !quiet) {
            die(client, 5'000'000, 0.5);
        } else if (luck < 0.20) {
            extend(client, mine.mode);
        } else if (luck < 0.28 && mine.mode == all) {
            downgrade(client);
        } else if (luck < 0.34 && !fenced_) {
            move(client);
        } else if (luck < 0.70) {
            give_up(client);
        }
    }

    /// With what the client relied on when it began to; asks how many wait, or does not.
    void extend(Client& client, std::int64_t mode) {
        Acquiring& mine = *client.acquiring;
        const std::int64_t sent = clock_.now();
        const std::int64_t lease = mine.lease * one_of({1, 1, 4});
        const Command command{
            "extend", {mine.token, text_of(lease), "0", text_of(mode), chance(0.3) ? "1" : "0"}};
        const auto reply = send(command);
        if (!reply || clock_.now() >= mine.valid_until) return;
        const bool yes =
            !reply->is_error() &&
            (reply->elements.empty() ? reply->integer == 1 : reply->elements[0].integer == 1);
        if (yes && extends_nothing(command, *reply)) return;
        if (yes) {
            mine.valid_until = std::max(mine.valid_until, sent + lease * 990 - 2000);
        } else if (mine.deleted) {
            give_up(client);
        } else {
            fail("lost while valid");
        }
    }

    /// A renewal that went out before may come after it, and the acquisition twice.
    void downgrade(Client& client) {
        Acquiring& mine = *client.acquiring;
        mine.mode = 1;
        const auto reply = send({"downgrade", {mine.token, "run"}});
        const bool no = reply && (reply->is_error() || reply->integer == 0);
        if (no && clock_.now() < mine.valid_until && !mine.deleted) fail("a valid writer is none");
        if (chance(0.5)) flying_.insert({clock_.now(), {"acquire", mine.asked}});
        if (chance(0.5)) extend(client, all);
    }

    void move(Client& client) {
        const Acquiring old = *std::exchange(client.acquiring, std::nullopt);
        const std::int64_t next_mode = is_shared() ? one_of({old.mode, std::int64_t{1}}) : old.mode;
        Acquiring next = old;
        next.token = new_token(client, next_mode);
        next.weight = next.mode = next_mode;
        next.unclear = true;
        const std::int64_t sent = next.last_try = clock_.now();
        not_after_[next.token] = sent + late_us;
        const auto reply =
            send({"move",
                  {old.token, text_of(old.lease), next.token, text_of(sent + late_us), "0",
                   text_of(old.weight), text_of(next_mode)}});
        release_at(sent + late_us + 51'000, old);
        if (reply && !reply->is_error() && reply->elements.at(0).integer == 1) {
            client.acquiring = next;
            got(*client.acquiring, sent, client.acquiring->lease, 0);
            return;
        }
        const bool refused = reply && !reply->is_error() && clock_.now() < old.valid_until;
        if (refused && !old.deleted) fail("a valid claim that cannot move");
        for (const Acquiring& each : {old, next}) release_at(clock_.now(), each);
        release_at(sent + late_us + 51'000, next);
    }

    // ---- What nobody here does

    void disturb() {
        if (!is_shared() && chance(0.01)) set_permits();
        if (!is_shared() && chance(0.002)) clock_.advance(std::chrono::hours{2});
        if (chance(0.002)) {
            redis_.del(keys_.lock);
            log_.push_back("deleted");
            for (Client& client : clients_) {
                if (client.acquiring) client.acquiring->deleted = true;
            }
        }
        if (full_ ? chance(0.05) : chance(0.003)) {
            full_ = !full_;
            redis_.command({"CONFIG", "SET", "maxmemory", full_ ? "1" : "0"});
        }
        if (chance(0.01)) use_as_other_kind();
    }

    void set_permits() {
        const auto issued = send({"set_permits", {"", "run", "0", "0", "0"}});
        if (!issued || issued->is_error()) return;
        send({"set_permits",
              {"", "run", text_of(one_of({0, 2, 3, 4, 6})), text_of(issued->integer),
               chance(0.5) ? "0" : text_of(clock_.now() + late_us)}});
    }

    /// Takes the lock where nobody has it or waits for it.
    void use_as_other_kind() {
        const State before = look();
        if (!before.queue.empty() || full_) return;
        const std::string token(32, 'f');
        const RawReply reply = redis_.command(
            script_call(other_, {"acquire", {token, "300", "0", "0", "run", "0", "0", "1", "1"}},
                        !is_shared()));
        log_.push_back("the other kind: " + reply.text);
        const bool ours = used(before, before.now) > 0 &&
                          before.sums.contains(is_shared() ? "shared" : "permits");
        if (ours && !reply.is_error()) fail("two kinds have it");
    }

    // ---- The end

    /// All who wait get it, and nothing is left behind.
    void finish() {
        redis_.command({"CONFIG", "SET", "maxmemory", "0"});
        full_ = false;
        for (Client& client : clients_) {
            if (!client.hears) listen(client, true);
            client.dead_until = 0;
        }
        if (setting_) {
            const auto issued = execute({"set_permits", {"", "run", "0", "0", "0"}});
            execute({"set_permits", {"", "run", "3", text_of(issued.integer), "0"}});
        }
        const std::int64_t end = clock_.now() + 120'000'000;
        const auto busy = [](const Client& client) { return client.acquiring.has_value(); };
        while (std::any_of(clients_.begin(), clients_.end(), busy)) {
            step(true);
            if (clock_.now() > end) fail("somebody waits for ever");
        }
        clock_.advance(5s);
        deliver();
        clock_.advance(std::chrono::milliseconds{2 * silence_ms + 1000});
        const State rest = look();
        if (!rest.claims.empty() || !rest.queue.empty()) fail("something is left behind");
        clock_.advance(std::chrono::hours{26});
        if (!redis_.keys().empty()) fail("a key is left behind");
    }

    void note(const Command& command, const RawReply& reply) {
        std::string line = std::to_string(clock_.now() % 10'000'000'000) + " " + command.name;
        for (const std::string& word : command.arguments) {
            line += " " + (word.size() > 8 ? word.substr(word.size() - 8) : word);
        }
        line += " -> " + reply.text + std::to_string(reply.integer);
        for (const RawReply& element : reply.elements)
            line += "," + std::to_string(element.integer);
        log_.push_back(line);
    }

    static std::string join(const std::vector<std::string>& lines) {
        std::string text;
        for (std::size_t i = lines.size() - std::min<std::size_t>(lines.size(), 25);
             i < lines.size(); ++i) {
            text += lines[i] + "\n";
        }
        return text;
    }

    [[noreturn]] void fail(const std::string& what) const { throw Violation{what}; }

    const ClaimKind kind_;
    int changed_ = 0;
    StillClock clock_;
    RedisServer server_{{.env = clock_.env()}};
    RawRedis redis_{server_};
    RawRedis subscriber_{server_};
    const struct Keys {
        std::string lock = "job", queue = "redlatch:queue:{job}",
                    waiters = "redlatch:waiters:{job}", fence = "redlatch:fence:{job}",
                    permits = "redlatch:permits:{job}";
    } keys_{};
    std::map<std::string, std::string> scripts_;  // name → text, then → SHA
    std::map<std::string, std::string> other_;
    std::mt19937 random_;
    std::vector<Client> clients_;
    std::multimap<std::int64_t, Command> flying_;
    std::multimap<std::int64_t, ToRelease> to_release_;
    std::map<std::string, Client*> holder_of_;
    std::map<std::string, std::int64_t> weight_of_;
    std::map<std::string, std::int64_t> not_after_;
    std::set<std::string> dead_;
    std::optional<std::int64_t> setting_;
    std::int64_t setting_issued_ = 0;
    std::int64_t greatest_ = usual_limit;  // number of permits that was ever set
    std::int64_t last_fence_ = 0;          // that a writer knows of
    std::int64_t last_fence_at_ = 0;
    bool fenced_ = false;
    bool full_ = false;
    std::vector<std::string> log_;
    mutable std::string story_;
};

}  // namespace redlatch::test
