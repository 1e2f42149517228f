--R"lua(
-- Takes the lock away from its owner, and the place that a late command of it may have left in
-- the queue. The first waiter gets the lock.
--
-- KEYS  lock, queue, waiters, fence. Without the last three nobody waits.
-- ARGV  token, server. The token is the owner's.
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, server = ARGV[1], ARGV[2]

-- #include "ours.lua"
if not ours then
  -- #include "only_on_master.lua"
  return 0
end

if key_type == 'h' then
  local most, fields = 1
  -- #include "only_a_hold.lua"
end

if queue and redis.pcall('ZREM', queue, token) == 1 then
  redis.pcall('HDEL', waiters, token)
end

-- A string is overwritten below, by the next one's.
local waiting = queue and redis.pcall('ZCARD', queue) ~= 0
if key_type == 'h' or not waiting then
  redis.call('DEL', lock)
end
-- In a slot that moves, no script may come back to a key that it has deleted. Nobody is served
-- then.
if not waiting or key_type == 'h' and redis.pcall('HLEN', lock) ~= 0 then
  return 1
end

-- #include "clock.lua"
-- #include "queue.lua"

local done, given = pcall(grant, nil, nil)
if key_type == 's' and not (done and given) and redis.call('GET', lock) == token then
  redis.call('DEL', lock)
end
return 1
--)lua"_lua
