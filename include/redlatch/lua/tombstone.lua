--R"lua(
-- Ends the token's hold, and keeps the lock from everybody for a while: a tombstone, which is
-- nobody's token, takes its place. Where the token has no hold, the same as `release`.
--
-- KEYS  lock, queue, waiters, fence. Without the last three nobody waits.
-- ARGV  token, server, kept_for
local function release()
-- #include "script"
end

local tombstone = ARGV[1] .. ':min_hold'
local ours, kept
if key_type == 's' then
  local owner = redis.call('GET', KEYS[1])
  ours, kept = owner == ARGV[1], owner == tombstone
  if ours then
    -- A full server forbids what takes memory as a first write.
    redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
    redis.call('SET', KEYS[1], tombstone, 'PX', ARGV[3])
  end
else
  ours = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
  kept = not ours and redis.call('HEXISTS', KEYS[1], tombstone) == 1
  if ours then
    -- In this order the key has an end at any time: PEXPIRE may delete it, where the new end comes
    -- meanwhile, and what is written after that would last for ever. The lock stays with the token
    -- where an ACL forbids one of them. The first one is there to fail before the others.
    redis.call('HDEL', KEYS[1], tombstone)
    redis.call('HSET', KEYS[1], tombstone, '1')
    local done = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
    if type(done) == 'table' then
      redis.call('HDEL', KEYS[1], tombstone)
      return done
    end
    redis.call('HDEL', KEYS[1], ARGV[1])
  end
end
if kept then
  -- A late command may have asked for a place with the token since.
  if KEYS[2] and redis.pcall('ZREM', KEYS[2], ARGV[1]) == 1 then
    redis.pcall('HDEL', KEYS[3], ARGV[1])
  end
  return 1
elseif not ours then
  return release()
end

if not KEYS[2] then
  return 1
end

-- The last fencing token, where there is one, is kept a day longer than the lock.
local lasts = ARGV[3] + 86400000
local left = redis.pcall('PTTL', KEYS[4])
if type(left) == 'number' and left >= 0 and left < lasts then
  redis.pcall('PEXPIRE', KEYS[4], lasts)
end

-- Those in front look when the tombstone ends, if they hear of it.

-- #include "tell_to_ask.lua"

for _, waiter in ipairs(redis.pcall('ZRANGE', KEYS[2], 0, 7)) do
  tell_to_ask(waiter)
end
return 1
--)lua"_lua
