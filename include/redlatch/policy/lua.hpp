#pragma once

#include <redlatch/policy/lock_policy.hpp>
#include <redlatch/policy/scripts.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

/// All Lua of the library, one file for each script. Composing the scripts and computing their SHAs waits
/// for the first use: at compile time it would cost every translation unit a third of a second.
namespace redlatch::inline v0::lua {

/// The files of redlatch/lua/ as they are. The first line of each, `--R"lua(`, and its last one,
/// `--)lua"_lua`, are comments to Lua. To C++ they begin and end a literal, with the operator `--` in front.
namespace files {

struct File {
    std::string_view text;
    constexpr std::string_view operator--() const noexcept { return text; }
};

constexpr File operator""_lua(const char* text, std::size_t size) noexcept {
    return {std::string_view{text, size}};
}

inline constexpr std::string_view acquire =
#include <redlatch/lua/acquire.lua>
    ;
inline constexpr std::string_view extend =
#include <redlatch/lua/extend.lua>
    ;
inline constexpr std::string_view release =
#include <redlatch/lua/release.lua>
    ;
inline constexpr std::string_view inspect =
#include <redlatch/lua/inspect.lua>
    ;
inline constexpr std::string_view force_unlock =
#include <redlatch/lua/force_unlock.lua>
    ;
inline constexpr std::string_view nest =
#include <redlatch/lua/nest.lua>
    ;
inline constexpr std::string_view move =
#include <redlatch/lua/move.lua>
    ;
inline constexpr std::string_view tombstone =
#include <redlatch/lua/tombstone.lua>
    ;
inline constexpr std::string_view notify_redisson =
#include <redlatch/lua/notify_redisson.lua>
    ;

// For locks with claims.
inline constexpr std::string_view claim_acquire =
#include <redlatch/lua/claim_acquire.lua>
    ;
inline constexpr std::string_view claim_extend =
#include <redlatch/lua/claim_extend.lua>
    ;
inline constexpr std::string_view claim_release =
#include <redlatch/lua/claim_release.lua>
    ;
inline constexpr std::string_view claim_inspect =
#include <redlatch/lua/claim_inspect.lua>
    ;
inline constexpr std::string_view claim_move =
#include <redlatch/lua/claim_move.lua>
    ;
inline constexpr std::string_view claim_downgrade =
#include <redlatch/lua/claim_downgrade.lua>
    ;
inline constexpr std::string_view claim_set_permits =
#include <redlatch/lua/claim_set_permits.lua>
    ;

// What several scripts include.
inline constexpr std::string_view clock =
#include <redlatch/lua/clock.lua>
    ;
inline constexpr std::string_view fencing =
#include <redlatch/lua/fencing.lua>
    ;
inline constexpr std::string_view late =
#include <redlatch/lua/late.lua>
    ;
inline constexpr std::string_view ours =
#include <redlatch/lua/ours.lua>
    ;
inline constexpr std::string_view key_space =
#include <redlatch/lua/key_space.lua>
    ;
inline constexpr std::string_view tell_to_ask =
#include <redlatch/lua/tell_to_ask.lua>
    ;
inline constexpr std::string_view channel =
#include <redlatch/lua/channel.lua>
    ;
inline constexpr std::string_view queue =
#include <redlatch/lua/queue.lua>
    ;
inline constexpr std::string_view place =
#include <redlatch/lua/place.lua>
    ;
inline constexpr std::string_view only_a_hold =
#include <redlatch/lua/only_a_hold.lua>
    ;
inline constexpr std::string_view only_on_master =
#include <redlatch/lua/only_on_master.lua>
    ;
inline constexpr std::string_view claims =
#include <redlatch/lua/claims.lua>
    ;
inline constexpr std::string_view claim_of =
#include <redlatch/lua/claim_of.lua>
    ;
inline constexpr std::string_view claim_queue =
#include <redlatch/lua/claim_queue.lua>
    ;

}  // namespace files

/// Puts a text in the place of each line `-- #include "name"` of a script.
inline void include(std::string& script, std::string_view name, std::string_view text) {
    std::string mark = "-- #include \"";
    mark.append(name).append("\"");
    for (std::size_t at = 0; (at = script.find(mark, at)) != script.npos;) {
        const std::size_t line = script.rfind('\n', at) + 1;
        script.replace(line, at + mark.size() - line, text);
        at = line + text.size();
    }
}

/// A script behind a line that says for which locks it is. A branch on that costs nothing that could be
/// measured beside a command.
inline Script compose(std::string_view line, std::string_view file, std::string_view inside = {}) {
    std::string script{line};
    script.append(file);
    include(script, "script", inside);
    include(script, "late.lua", files::late);
    include(script, "ours.lua", files::ours);
    include(script, "queue.lua", files::queue);
    include(script, "place.lua", files::place);
    include(script, "clock.lua", files::clock);
    include(script, "fencing.lua", files::fencing);
    include(script, "claims.lua", files::claims);
    include(script, "claim_of.lua", files::claim_of);
    include(script, "claim_queue.lua", files::claim_queue);
    include(script, "only_a_hold.lua", files::only_a_hold);
    include(script, "only_on_master.lua", files::only_on_master);
    include(script, "tell_to_ask.lua", files::tell_to_ask);
    include(script, "channel.lua", files::channel);
    include(script, "key_space.lua", files::key_space);
    return Script{std::move(script)};
}

/// For locks of one key type: `key_type` is `s` there for a string, `h` for a hash.
inline Script compose(KeyType key_type, std::string_view file, std::string_view inside = {}) {
    return compose(key_type == KeyType::string ? "local key_type = 's'" : "local key_type = 'h'",
                   file, inside);
}

template <KeyType Type>
LockScripts compose_all() {
    return {.acquire = compose(Type, files::acquire),
            .extend = compose(Type, files::extend),
            .release = compose(Type, files::release),
            .inspect = compose(Type, files::inspect),
            .force_unlock = compose(Type, files::force_unlock),
            .nest = Type == KeyType::hash ? compose(Type, files::nest) : Script{""},
            .move = compose(Type, files::move),
            .tombstone = compose(Type, files::tombstone, files::release)};
}

/// For locks with claims: `line` says of which kind.
inline LockScripts compose_all_of_claims(std::string_view line) {
    const auto release = [line](const char* forced) {
        return compose(std::string{line} + " local forced = " + forced, files::claim_release);
    };
    return {.acquire = compose(line, files::claim_acquire),
            .extend = compose(line, files::claim_extend),
            .release = release("false"),
            .inspect = compose(line, files::claim_inspect),
            .force_unlock = release("true"),
            .move = compose(line, files::claim_move)};
}

inline LockScripts compose_all_shared() {
    constexpr std::string_view line = "local kind = 'shared'";
    LockScripts scripts = compose_all_of_claims(line);
    scripts.downgrade = compose(line, files::claim_downgrade);
    return scripts;
}

inline LockScripts compose_all_permits() {
    constexpr std::string_view line = "local kind = 'permits'";
    LockScripts scripts = compose_all_of_claims(line);
    scripts.set_permits = compose(line, files::claim_set_permits);
    return scripts;
}

/// `release`, `tombstone` or `force_unlock`, which then tells those who wait for the lock with Redisson.
inline Script notifying_redisson(const Script& script) {
    std::string source{files::notify_redisson};
    include(source, "script", script.source());
    return Script{std::move(source)};
}

/// Where `built_once` keeps what `Build` makes.
template <LockScripts (*Build)()>
inline constinit std::atomic<const LockScripts*> place_of{nullptr};

/// Builds scripts at their first use, and keeps them for good. Two threads may both build them, and one
/// is thrown away: a lock in this place would be locked for ever in a child that was forked while
/// another thread held it.
template <LockScripts (*Build)()>
const LockScripts& built_once() {
    const LockScripts* built = place_of<Build>.load(std::memory_order_acquire);
    if (built != nullptr) return *built;
    auto own = std::make_unique<const LockScripts>(Build());
    return place_of<Build>.compare_exchange_strong(built, own.get()) ? *own.release() : *built;
}

/// A string: the owner's token.
inline const LockScripts& on_string() {
    return built_once<&compose_all<KeyType::string>>();
}

/// A hash: the owner's token → its hold count. The shape of Redisson's locks.
inline const LockScripts& on_hash() {
    return built_once<&compose_all<KeyType::hash>>();
}

/// A sorted set of readers' and writers' claims.
inline const LockScripts& on_shared_claims() {
    return built_once<&compose_all_shared>();
}

/// A sorted set of claims to permits.
inline const LockScripts& on_permits() {
    return built_once<&compose_all_permits>();
}

inline LockScripts compose_all_for_redisson() {
    LockScripts scripts = on_hash();
    scripts.release = notifying_redisson(scripts.release);
    scripts.tombstone = notifying_redisson(scripts.tombstone);
    scripts.force_unlock = notifying_redisson(scripts.force_unlock);
    return scripts;
}

/// The same, and Redisson's waiters are told when the lock has become free.
inline const LockScripts& on_hash_for_redisson() {
    return built_once<&compose_all_for_redisson>();
}

/// Those of these that are built; null for each that is not. Scripts that somebody has are among them, or belong to a
/// policy of the user's own. To build the others for that would take the first renewal of a process many milliseconds.
inline std::array<const LockScripts*, 5> built_of_library() noexcept {
    const auto built = [](const auto& place) { return place.load(std::memory_order_acquire); };
    return {built(place_of<&compose_all<KeyType::string>>),
            built(place_of<&compose_all<KeyType::hash>>), built(place_of<&compose_all_shared>),
            built(place_of<&compose_all_permits>), built(place_of<&compose_all_for_redisson>)};
}

/// Those of a policy of the user's own, which may be wrong, and then end what goes over the same connection; null for
/// these here.
inline const void* users_own(const LockScripts& scripts) noexcept {
    const auto built = built_of_library();
    const bool ours = std::find(built.begin(), built.end(), &scripts) != built.end();
    return ours ? nullptr : &scripts;
}

/// Whether it is one of these here.
inline bool is_of_library(const Script& script) noexcept {
    const auto built = built_of_library();
    const void* const at = &script;
    return std::any_of(built.begin(), built.end(), [at](const LockScripts* scripts) {
        if (scripts == nullptr) return false;
        const void* const begin = scripts;
        const void* const end = scripts + 1;
        return std::less_equal<>{}(begin, at) && std::less<>{}(at, end);
    });
}

}  // namespace redlatch::inline v0::lua
