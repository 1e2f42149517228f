#pragma once

#include <redlatch/policy/scripts.hpp>

#include <atomic>
#include <memory>
#include <string>

/// All Lua of the library. Composing the scripts and computing their SHAs waits for the first use:
/// at compile time it would cost every translation unit a third of a second.
namespace redlatch::inline v0::lua {

/// For scripts that may give somebody a lock: the server's clock, in microseconds, and the fencing
/// tokens that rise with it. Numbers below 2^53, which Lua's are exact for. In all of these scripts a
/// function costs time where it is only made, and a command more than that: hence few of both. A
/// number that goes into a command costs too, as it is written out: `acquire` uses its text.
inline constexpr const char* fencing = R"lua(
-- As it stood when it was asked first; 0 where nobody needed to know.
local now = 0
local function clock()
  if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end

-- The stored number if the holder has the lock `already`, else the next one; and whether that has to be
-- stored. Where the last one was lost, or overwritten with something else, the clock says the next.
local function number_of(already)
  local last = tonumber(redis.pcall('GET', fence))
  if not (last and last > 0 and last < 9007199254740991) then
    last, already = 0, false
  end
  return already and last or math.max(last + 1, clock()), not already
end

-- Runs behind the lock, so that no error there leaves a number. The number is kept a day longer than
-- the lock. Returns an error, or nothing.
local function store(number, is_new, lease)
  local life = lease + 86400000
  if is_new then
    local done = redis.pcall('SET', fence, string.format('%.0f', number), 'PX', life)
    return done.err and done
  end
  if redis.call('PTTL', fence) < life then
    redis.call('PEXPIRE', fence, life)
  end
end
)lua";

/// For scripts that make a lock last longer: so does the key of its fencing tokens.
inline constexpr const char* keep_fence = R"lua(
if fence and redis.call('PTTL', fence) < lease + 86400000 then
  redis.call('PEXPIRE', fence, lease + 86400000)
end
)lua";

/// For `extend`: the key of the fencing tokens takes over what another master has given.
inline constexpr const char* raise_fence = R"lua(
local least = tonumber(ARGV[3] or 0)
if fence and least > (tonumber(redis.pcall('GET', fence)) or 0) then
  redis.call('SET', fence, string.format('%.0f', least), 'PX', lease + 86400000)
  return 1
end
)lua";

/// For scripts that may give somebody a lock or a place: they change nothing where nobody waits for
/// their answer any more.
inline constexpr const char* in_time = R"lua(
if not_after > 0 and clock() > not_after then
  return redis.error_reply(string.format('LATE %.0f is the time, too late for this command', now))
end
)lua";

/// For `acquire`: an error about a companion key names it, as it is not the one that was asked for.
inline constexpr const char* named = R"lua(
local function about(key, failed)
  failed.err = failed.err .. ' (' .. key .. ')'
  return failed
end
)lua";

/// Stands before the answer "not ours", which is to be believed of a master only: a replica may not
/// have heard yet that it is ours. `probe` is a write that changes nothing.
inline std::string unless_replica(const std::string& probe) {
    return R"lua(
  local done = redis.pcall()lua" +
           probe + R"lua()
  if type(done) == 'table' and string.find(done.err, 'READONLY', 1, true) then
    return redis.error_reply('READONLY the server is a replica')
  end
)lua";
}

/// The queue of those who wait for a lock, behind `fencing`. A waiter's terms are its lock's shape,
/// its lease, the server's time in microseconds until which it counts as alive, whether it hears
/// messages, and whether it wants a fencing token.
///
/// An ACL may forbid any single command. So a waiter is taken out of the queue before the lock is
/// written in its name, and behind that nothing can fail.
inline constexpr const char* queue = R"lua(
local function terms(shape, lease, seen_until, hears, fenced)
  return string.format('%s %s %.0f %s %s', shape, lease, seen_until, hears, fenced)
end

-- `own_shape`: of the lock that is free now, or whose key may be overwritten. Returns the fencing
-- token, or 0 for who wants none.
local function give(token, shape, lease, fenced, own_shape)
  local number = fenced == '1' and number_of(false) or 0
  local failed = false
  if shape == 's' then
    redis.call('SET', lock, token, 'PX', lease)
  else
    if own_shape == 's' then
      redis.call('DEL', lock)
    end
    redis.call('HSET', lock, token, 1)
    local done = redis.pcall('PEXPIRE', lock, lease)
    failed = type(done) == 'table' and done
  end
  if number > 0 and not failed then
    failed = store(number, true, lease)
  end
  if failed then
    -- Only a hash gets here: the command that stores a number writes a string, too. A key without an end
    -- would lock everybody out for ever.
    redis.call('HDEL', lock, token)
    error(failed.err, 0)
  end
  return number
end

-- Gives the lock to the first waiter who can take it, and takes him out of the queue, as it does
-- with the dead before him. Whose client is not there just now keeps the place for a moment. Returns
-- who it was, and for how long; where it was nobody, whether more wait than one run may look at, and
-- whether it has removed some, so that another run gets further. To `me` it gives only the word, and to
-- `dead` nothing: a late command may have given a place to a token that is released. Where it may not read
-- the terms it returns nobody, and the error.
local function grant(me, dead, own_shape, server)
  local batch = redis.call('ZRANGE', queue, 0, 0)
  local looked, kept = 0, 0
  while batch[1] and looked < 10000 do
    for _, token in ipairs(batch) do
      if token == me then
        redis.call('ZREM', queue, me)
        redis.call('HDEL', waiters, me)
        return me
      end
      -- A client's tokens begin with its id, 32 hexadecimal digits.
      local channel = 'redlatch:client:' .. string.sub(token, 1, 32)
      local known = redis.pcall('HGET', waiters, token) or ''
      if type(known) == 'table' then
        return nil, known
      end
      local shape, lease, seen_until, hears, fenced =
          string.match(known, '^(%a) (%d+) (%d+) (%d) (%d)$')
      local alive = shape and tonumber(seen_until) > clock() and token ~= dead
      local listeners = alive and hears == '1' and redis.pcall('PUBSUB', 'NUMSUB', channel)
      if listeners and listeners[2] == 0 then
        kept = kept + 1
        if tonumber(seen_until) > now + 5000000 then
          redis.pcall('HSET', waiters, token, terms(shape, lease, now + 5000000, hears, fenced))
        end
      else
        redis.call('ZREM', queue, token)
        redis.call('HDEL', waiters, token)
        if alive then
          local number = give(token, shape, lease, fenced, own_shape)
          if hears == '1' then
            local facts =
                string.format('%s %.0f %s %s %.0f %d ', lease, now, server, shape, number, #token)
            redis.pcall('PUBLISH', channel, facts .. token .. lock)
          end
          return token, tonumber(lease)
        end
      end
    end
    looked = looked + #batch
    batch = redis.call('ZRANGE', queue, kept, kept + 99)
  end
  return nil, nil, batch[1] ~= nil, kept < looked
end
)lua";

/// For `acquire`, behind `queue`; `own_shape` says which one this lock has.
inline constexpr const char* waiting = R"lua(
local function leave()
  redis.pcall('ZREM', queue, token)
  redis.pcall('HDEL', waiters, token)
end

-- Takes a place in the queue, or keeps it. Returns how many wait in front, or an error: then there
-- is no place, and no key that would stay for ever.
local function join()
  local seen_until = clock() + stay * 1000
  local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')
  if last.err then
    return nil, about(queue, last)
  end
  last = last[2]
  -- A new key has no end; if one of the two is, both get one.
  local endless = not last or redis.call('PTTL', waiters) < stay
  -- Behind everybody else, whatever the server's clock did meanwhile.
  local score = string.format('%.0f', math.max(now, (last or 0) + 1))
  if redis.call('ZADD', queue, 'NX', score, token) == 0 then
    -- Never shorter: this may be an old command that arrives late.
    local before = redis.call('HGET', waiters, token) or ''
    seen_until = math.max(seen_until, string.match(before, '^%a %d+ (%d+) %d %d$') or 0)
  end
  local mine = terms(own_shape, ARGV[2], seen_until, hears, fenced and '1' or '0')
  local done = endless and redis.pcall('PEXPIRE', queue, 2 * stay)
  if type(done) ~= 'table' then
    done = redis.pcall('HSET', waiters, token, mine)
  end
  if type(done) == 'table' then
    leave()
    return nil, about(waiters, done)
  end
  if endless then
    redis.call('PEXPIRE', waiters, 2 * stay)
  end
  return last and tonumber(redis.pcall('ZRANK', queue, token)) or 0
end

-- The answer to a token that has to wait. A token of this library's begins with its client's id, and is
-- no longer than this; a foreign one may be anything.
local function refuse(ttl, place, owner)
  local grants = string.match(owner, '^%x+:()') == 34 and 1 or 0
  return {0, ttl, place, clock(), grants, string.sub(owner, 1, 160)}
end

-- The lock is held by `owner`.
local function wait(ttl, owner)
  if stay > 0 then
    local place, failed = join()
    return failed or refuse(ttl, place, owner)
  end
  if stay < 0 then
    leave()
    return refuse(ttl, -1, owner)
  end
  return refuse(ttl, redis.call('ZRANK', queue, token) or -1, owner)
end

-- The lock is free: whoever has waited comes first. Returns the answer if that is somebody else. A place is
-- taken last: what fails before leaves none.
local function give_way()
  local given, its_lease, unseen, removed = grant(token, nil, own_shape, server)
  if type(its_lease) == 'table' then
    return about(waiters, its_lease)
  end
  if given == token or not (given or unseen and removed) then
    if unseen then
      leave()
    end
    return nil
  end
  local place = -1
  if stay > 0 then
    -- The grant must not be lost behind an error.
    local joined, at = pcall(join)
    place = joined and at or -1
  elseif stay < 0 then
    leave()
  else
    place = tonumber(redis.pcall('ZRANK', queue, token)) or -1
  end
  return refuse(its_lease or -2, place, given or '')
end
)lua";

/// Builds something at its first use, and keeps it for good. Two threads may both build it, and one
/// is thrown away: a lock in this place would be locked for ever in a child that was forked while
/// another thread held it.
template <class T>
const T& built_once(std::atomic<const T*>& place, T (*build)()) {
    const T* built = place.load(std::memory_order_acquire);
    if (built != nullptr) return *built;
    auto own = std::make_unique<const T>(build());
    return place.compare_exchange_strong(built, own.get()) ? *own.release() : *built;
}

inline LockScripts build_on_string() {
    const std::string if_master = unless_replica("'SETRANGE', lock, 0, ''");

    const std::string acquire = std::string{R"lua(
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6] or 0)
local fenced = ARGV[7] == '1'
)lua"} + fencing + in_time + R"lua(
local owner = redis.call('GET', lock)
if owner == token then
  -- Also where that changes nothing: replicas are asked whether they have what was written here.
  local ttl = math.max(redis.call('PTTL', lock), lease)
  redis.call('PEXPIRE', lock, ttl)
  local waiting = queue and tonumber(redis.pcall('ZCARD', queue)) or 0
  local number, is_new = 0, false
  if fenced then
    number, is_new = number_of(true)
    local failed = store(number, is_new, lease)
    if failed then
      return failed
    end
  end
  return {1, ttl, waiting, now, number}
end

local function take(waiting)
  local number = fenced and number_of(false) or 0
  redis.call('SET', lock, token, 'PX', ARGV[2])
  return fenced and store(number, true, lease) or {1, lease, waiting, now, number}
end

local queued = not owner and queue and redis.pcall('ZCARD', queue) or 0
if not owner and queued == 0 then
  return take(0)
end
if not queue then
  return {0, redis.call('PTTL', lock)}
end
)lua" + named + R"lua(
if type(queued) == 'table' then
  return about(queue, queued)
end
local own_shape, stay, hears, server = 's', tonumber(ARGV[3]), ARGV[4], ARGV[5]
)lua" + queue + waiting + R"lua(
if owner then
  return wait(redis.call('PTTL', lock), owner)
end
return give_way() or take(redis.call('ZCARD', queue))
)lua";

    const std::string release = std::string{R"lua(
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, server = ARGV[1], ARGV[2]
local owner = redis.call('GET', lock)
if owner ~= token then
  if queue and redis.pcall('ZREM', queue, token) == 1 then
    redis.pcall('HDEL', waiters, token)
  end
)lua"} + if_master + R"lua(
  if owner then
    return 0
  end
end
if not (queue and redis.pcall('ZCARD', queue) ~= 0) then
  return owner and redis.call('DEL', lock) or 0
end
)lua" + fencing + queue + R"lua(
local done, given, _, unseen, removed = pcall(grant, nil, token, 's', server)
if not (done and given) and redis.call('GET', lock) == token then
  redis.call('DEL', lock)
end
return done and unseen and removed and 2 or owner and 1 or 0
)lua";

    const std::string force = std::string{R"lua(
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('GET', lock) ~= ARGV[1] then
  return 0
end
if not (queue and redis.pcall('ZCARD', queue) ~= 0) then
  return redis.call('DEL', lock)
end
)lua"} + fencing + queue + R"lua(
local done, given = pcall(grant, nil, nil, 's', ARGV[2])
if not (done and given) and redis.call('GET', lock) == ARGV[1] then
  redis.call('DEL', lock)
end
return 1
)lua";

    return {
        .acquire = Script{acquire},

        .extend = Script{R"lua(
local lock, fence, token, lease = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
if redis.call('GET', lock) ~= token then
)lua" + if_master + R"lua(
  return 0
end
if lease > 0 and redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
)lua" + raise_fence + keep_fence +
                         R"lua(
return 1
)lua"},

        .release = Script{release},

        .inspect = Script{R"lua(
local lock, queue = KEYS[1], KEYS[2]
local owner = redis.call('GET', lock)
local waiting = queue and tonumber(redis.pcall('ZCARD', queue)) or 0
if not owner then
)lua" + if_master + R"lua(
  return {'', 0, -2, waiting}
end
return {owner, 1, redis.call('PTTL', lock), waiting}
)lua"},

        .force = Script{force},

        .move = Script{std::string{R"lua(
local lock, queue, fence = KEYS[1], KEYS[2], KEYS[3]
local token, lease, next_token = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local not_after, fenced = tonumber(ARGV[4] or 0), ARGV[5] == '1'
)lua"} + fencing + in_time +
                       R"lua(
local owner = redis.call('GET', lock)
local waiting = queue and tonumber(redis.pcall('ZCARD', queue)) or 0
if owner == token then
  local number = fenced and number_of(false) or 0
  redis.call('SET', lock, next_token, 'PX', lease)
  return fenced and store(number, true, lease) or {1, waiting, number}
end
if owner ~= next_token then
)lua" + if_master + R"lua(
  return {0, waiting, 0}
end
if redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
local number, is_new = 0, false
if fenced then
  number, is_new = number_of(true)
end
return fenced and store(number, is_new, lease) or {1, waiting, number}
)lua"},
    };
}

inline LockScripts build_on_hash() {
    const std::string if_master = unless_replica("'HDEL', lock, token");

    const std::string acquire = std::string{R"lua(
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6] or 0)
local fenced = ARGV[7] == '1'
)lua"} + fencing + in_time + R"lua(
local ttl = redis.call('PTTL', lock)
local free = ttl == -2

local function take(waiting)
  local number, is_new = 0, false
  if fenced then
    number, is_new = number_of(not free)
  end
  if free then
    redis.call('HSET', lock, token, '1')
  end
  -- Also where that changes nothing: replicas are asked whether they have what was written here.
  local longer = ttl > lease
  local done = redis.pcall('PEXPIRE', lock, longer and ttl or ARGV[2])
  local failed = type(done) == 'table' and done or fenced and store(number, is_new, lease)
  if failed then
    -- Forbidden by the ACL: a key without an end would lock everybody out for ever.
    redis.call('HDEL', lock, token)
    return failed
  end
  return {1, longer and ttl or lease, waiting, now, number}
end

local queued = free and queue and redis.pcall('ZCARD', queue) or 0
if free and queued == 0 then
  return take(0)
end
if not free and redis.call('HEXISTS', lock, token) == 1 then
  return take(queue and tonumber(redis.pcall('ZCARD', queue)) or 0)
end
if not queue then
  return {0, ttl}
end
)lua" + named + R"lua(
if type(queued) == 'table' then
  return about(queue, queued)
end
local own_shape, stay, hears, server = 'h', tonumber(ARGV[3]), ARGV[4], ARGV[5]
)lua" + queue + waiting + R"lua(
if free then
  return give_way() or take(redis.call('ZCARD', queue))
end
return wait(ttl, redis.call('HKEYS', lock)[1])
)lua";

    const std::string release = std::string{R"lua(
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, server = ARGV[1], ARGV[2]
local alone = not (queue and redis.pcall('ZCARD', queue) ~= 0)
-- A replica fails here, and so says nothing about whose the lock is.
local ours = redis.call('HDEL', lock, token)
if ours == 0 and queue and redis.pcall('ZREM', queue, token) == 1 then
  redis.pcall('HDEL', waiters, token)
end
if alone or redis.pcall('HLEN', lock) ~= 0 then
  return ours
end
)lua"} + fencing + queue + R"lua(
local done, _, _, unseen, removed = pcall(grant, nil, token, 'h', server)
return done and unseen and removed and 2 or ours
)lua";

    const std::string force = std::string{R"lua(
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('HEXISTS', lock, ARGV[1]) == 0 then
  return 0
end
redis.call('DEL', lock)
if not (queue and redis.pcall('ZCARD', queue) ~= 0) then
  return 1
end
)lua"} + fencing + queue + R"lua(
pcall(grant, nil, nil, 'h', ARGV[2])
return 1
)lua";

    return {
        .acquire = Script{acquire},

        .extend = Script{R"lua(
local lock, fence, token, lease = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
if redis.call('HEXISTS', lock, token) == 0 then
)lua" + if_master + R"lua(
  return 0
end
if lease > 0 and redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
)lua" + raise_fence + keep_fence +
                         R"lua(
return 1
)lua"},

        .release = Script{release},

        .inspect = Script{R"lua(
local lock, queue, token = KEYS[1], KEYS[2], ARGV[1]
local fields = redis.call('HGETALL', lock)
local waiting = queue and tonumber(redis.pcall('ZCARD', queue)) or 0
if #fields == 0 then
)lua" + if_master + R"lua(
  return {'', 0, -2, waiting}
end
return {fields[1], tonumber(fields[2]) or 0, redis.call('PTTL', lock), waiting}
)lua"},

        .force = Script{force},

        .nest = Script{R"lua(
local lock, fence = KEYS[1], KEYS[2]
local token, count, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('HEXISTS', lock, token) == 0 then
)lua" + if_master + R"lua(
  return 0
end
redis.call('HSET', lock, token, count)
if lease > 0 and redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
)lua" + keep_fence + R"lua(
return 1
)lua"},

        .move = Script{std::string{R"lua(
local lock, queue, fence = KEYS[1], KEYS[2], KEYS[3]
local token, lease, next_token = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local not_after, fenced = tonumber(ARGV[4] or 0), ARGV[5] == '1'
)lua"} + fencing + in_time +
                       R"lua(
local waiting = queue and tonumber(redis.pcall('ZCARD', queue)) or 0
if redis.call('HEXISTS', lock, token) == 1 then
  local number = fenced and number_of(false) or 0
  redis.call('DEL', lock)
  redis.call('HSET', lock, next_token, 1)
  local done = redis.pcall('PEXPIRE', lock, lease)
  local failed = type(done) == 'table' and done or fenced and store(number, true, lease)
  if failed then
    redis.call('DEL', lock)
    return failed
  end
  return {1, waiting, number}
end
if redis.call('HEXISTS', lock, next_token) == 0 then
)lua" + if_master + R"lua(
  return {0, waiting, 0}
end
if redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
local number, is_new = 0, false
if fenced then
  number, is_new = number_of(true)
end
return fenced and store(number, is_new, lease) or {1, waiting, number}
)lua"},
    };
}

/// A string: the owner's token.
inline const LockScripts& on_string() {
    static constinit std::atomic<const LockScripts*> scripts{nullptr};
    return built_once(scripts, &build_on_string);
}

/// A hash: the owner's token → its hold count. The shape of Redisson's locks.
inline const LockScripts& on_hash() {
    static constinit std::atomic<const LockScripts*> scripts{nullptr};
    return built_once(scripts, &build_on_hash);
}

/// `release` or `force`, which then tells those who wait for the lock with Redisson: they sleep until
/// a message says that it is free. Their channel is a companion of the key, in a Cluster a sharded one.
inline std::string telling_redisson(const Script& script) {
    return "local function free()\n" + std::string{script.source()} + R"lua(
end
local answer = free()
if (answer == 1 or answer == 2) and redis.pcall('EXISTS', KEYS[1]) ~= 1 then
  local tagged = string.find(KEYS[1], '{', 1, true)
  local channel = 'redisson_lock__channel:' .. (tagged and KEYS[1] or '{' .. KEYS[1] .. '}')
  redis.pcall('PUBLISH', channel, '0')
  redis.pcall('SPUBLISH', channel, '0')
end
return answer
)lua";
}

inline LockScripts build_on_hash_for_redisson() {
    LockScripts scripts = on_hash();
    scripts.release = Script{telling_redisson(scripts.release)};
    scripts.force = Script{telling_redisson(scripts.force)};
    return scripts;
}

/// The same, and Redisson's waiters are told when the lock has become free.
inline const LockScripts& on_hash_for_redisson() {
    static constinit std::atomic<const LockScripts*> scripts{nullptr};
    return built_once(scripts, &build_on_hash_for_redisson);
}

}  // namespace redlatch::inline v0::lua
