--R"lua(
-- Says who has the lock, how often, for how long, and how many wait.
--
-- KEYS  lock, queue. Without the last one nobody waits.
-- ARGV  token, which is empty
local lock, queue, token = KEYS[1], KEYS[2], ARGV[1]

local owner, hold_count
if key_type == 's' then
  owner, hold_count = redis.call('GET', lock), 1
else
  local most, fields = 1
  -- #include "only_a_hold.lua"
  owner, hold_count = fields[1], tonumber(fields[2])
end
local waiting = queue and tonumber(redis.pcall('ZCARD', queue)) or 0
if not owner then
  -- #include "only_on_master.lua"
  return {'', 0, -2, waiting}
end
return {owner, hold_count, redis.call('PTTL', lock), waiting}
--)lua"_lua
