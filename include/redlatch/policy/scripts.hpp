#pragma once

#include <redlatch/net/script.hpp>

namespace redlatch::inline v0 {

/// The server's side of a policy. Every script has KEYS[1] = the lock's key and ARGV[1] = the
/// owner's token, and must be safe to run twice and to run late:
///
/// | script  | further ARGV       | reply                | run again         | run late (token dead)    |
/// |---------|--------------------|----------------------|-------------------|--------------------------|
/// | acquire | lease              | {1, ttl} ours        | ours, lease full  | takes a free key until   |
/// |         |                    | {0, ttl} another's   | the same          | its lease ends; released |
/// |         |                    |                      |                   | once more by the client  |
/// | nest    | hold count, lease  | 1 done, 0 not ours   | the same count    | nothing, or an old count |
/// | extend  | lease              | 1 done, 0 not ours   | never shorter     | nothing                  |
/// | release | –                  | 1 freed, 0 not ours  | 0                 | nothing                  |
/// | inspect | – (token is empty) | {owner, count, ttl}  | reads only        | reads only               |
/// | force   | – (token is empty) | 1 removed, 0 absent  | 0                 | an operator's own risk   |
///
/// Leases and ttls are milliseconds; ttl is PTTL's answer. A lease of 0 leaves the ttl alone. The
/// hold count is absolute, so a repetition cannot add up; it is there for people and for other
/// clients: whether a lock is free is decided by `release`, which ends it whatever its count.
/// A key of another type must make the script fail with WRONGTYPE before it changes anything.
struct LockScripts {
    Script acquire;
    Script extend;
    Script release;
    Script inspect;
    Script force;
    Script nest{""};  ///< only for a policy that is reentrant
};

/// All Lua of the library. Computing the SHAs waits for the first use: at compile time it would
/// cost every translation unit a third of a second.
namespace lua {

/// A string: the owner's token.
inline const LockScripts& on_string() {
    static const LockScripts scripts{
        .acquire = Script{R"lua(
local key, token, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local owner = redis.call('GET', key)
if not owner then
  redis.call('SET', key, token, 'PX', lease)
  return {1, lease}
end
local ttl = redis.call('PTTL', key)
if owner ~= token then
  return {0, ttl}
end
if ttl < lease then
  redis.call('PEXPIRE', key, lease)
  ttl = lease
end
return {1, ttl}
)lua"},

        .extend = Script{R"lua(
local key, token, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
if redis.call('GET', key) ~= token then
  return 0
end
if redis.call('PTTL', key) < lease then
  redis.call('PEXPIRE', key, lease)
end
return 1
)lua"},

        .release = Script{R"lua(
local key, token = KEYS[1], ARGV[1]
if redis.call('GET', key) ~= token then
  return 0
end
return redis.call('DEL', key)
)lua"},

        .inspect = Script{R"lua(
local key = KEYS[1]
local owner = redis.call('GET', key)
if not owner then
  return {'', 0, -2}
end
return {owner, 1, redis.call('PTTL', key)}
)lua"},

        .force = Script{R"lua(
local key = KEYS[1]
if not redis.call('GET', key) then
  return 0
end
return redis.call('DEL', key)
)lua"},
    };
    return scripts;
}

/// A hash: the owner's token → its hold count. The shape of Redisson's locks.
inline const LockScripts& on_hash() {
    static const LockScripts scripts{
        .acquire = Script{R"lua(
local key, token, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local ttl = redis.call('PTTL', key)
if ttl == -2 then
  redis.call('HSET', key, token, 1)
elseif redis.call('HEXISTS', key, token) == 0 then
  return {0, ttl}
end
if ttl < lease then
  local done = redis.pcall('PEXPIRE', key, lease)
  if type(done) == 'table' then
    -- Forbidden by the ACL: a key without an end would lock everybody out for ever.
    redis.call('HDEL', key, token)
    return done
  end
  ttl = lease
end
return {1, ttl}
)lua"},

        .extend = Script{R"lua(
local key, token, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
if redis.call('HEXISTS', key, token) == 0 then
  return 0
end
if redis.call('PTTL', key) < lease then
  redis.call('PEXPIRE', key, lease)
end
return 1
)lua"},

        .release = Script{R"lua(
local key, token = KEYS[1], ARGV[1]
return redis.call('HDEL', key, token)
)lua"},

        .inspect = Script{R"lua(
local key = KEYS[1]
local fields = redis.call('HGETALL', key)
if #fields == 0 then
  return {'', 0, -2}
end
return {fields[1], tonumber(fields[2]) or 0, redis.call('PTTL', key)}
)lua"},

        .force = Script{R"lua(
local key = KEYS[1]
if redis.call('HLEN', key) == 0 then
  return 0
end
return redis.call('DEL', key)
)lua"},

        .nest = Script{R"lua(
local key, token, count, lease = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('HEXISTS', key, token) == 0 then
  return 0
end
redis.call('HSET', key, token, count)
if redis.call('PTTL', key) < lease then
  redis.call('PEXPIRE', key, lease)
end
return 1
)lua"},
    };
    return scripts;
}

}  // namespace lua
}  // namespace redlatch::inline v0
