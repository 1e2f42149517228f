--R"lua(
-- Ends the token's hold, or its place in the queue. A lock that is free then goes to the first
-- waiter.
--
-- KEYS  lock, queue, waiters, fence. Without the last three nobody waits.
-- ARGV  token, server
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, server = ARGV[1], ARGV[2]

-- A hash ends here. On a replica that fails, and says nothing about whose the lock is. A string
-- is overwritten or deleted below.
local owner, ours
if key_type == 's' then
  owner = redis.call('GET', lock)
  ours = owner == token
else
  ours = redis.call('HDEL', lock, token) == 1
end

if not ours then
  if queue and redis.pcall('ZREM', queue, token) == 1 then
    redis.pcall('HDEL', waiters, token)
  end
  if key_type == 's' then
    -- #include "only_on_master.lua"
  end
  if owner then
    return 0
  end
end

if not (queue and redis.pcall('ZCARD', queue) ~= 0) then
  return ours and (key_type == 'h' and 1 or redis.call('DEL', lock)) or 0
end
if key_type == 'h' and redis.pcall('HLEN', lock) ~= 0 then
  return ours and 1 or 0
end

-- #include "clock.lua"
-- #include "queue.lua"

local done, given, _, unseen, removed = pcall(grant, nil, token)
if key_type == 's' and not (done and given) and redis.call('GET', lock) == token then
  redis.call('DEL', lock)
end
if done and unseen and removed then
  return ours and 2 or -1
end
return ours and 1 or 0
--)lua"_lua
