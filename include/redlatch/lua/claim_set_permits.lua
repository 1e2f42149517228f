--R"lua(
-- Sets how many permits there are, for all clients. Those who wait and fit in now are let in.
--
-- KEYS  lock, queue, waiters, permits
-- ARGV  token, which is empty, server, number, issued, deadline. The time of issue is what this
--       script answers where it is 0: the server's clock, or later than what is set.
local lock, queue, waiters, permits = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local fence = false
local token, server, wanted = ARGV[1], ARGV[2], ARGV[3]
local issued, deadline = tonumber(ARGV[4]), tonumber(ARGV[5])

-- #include "clock.lua"
-- #include "fencing.lua"

-- #include "late.lua"

-- #include "claims.lua"
-- #include "claim_queue.lua"

local foreign = count()
if foreign then
  return foreign
end
local value = redis.pcall('GET', permits)
local last = type(value) == 'string' and tonumber(string.match(value, '^%d+ (%d+)$')) or 0
if issued == 0 then
  pcall(grant)
  local key_type = 'z'
  -- #include "only_on_master.lua"
  return math.max(clock(), last + 1)
end
local setting = wanted .. ' ' .. exact(issued)
local counts = issued > last or value == setting
if counts then
  local ttl = math.max(redis.call('PTTL', permits), 90000000)
  redis.call('SET', permits, setting, 'PX', exact(ttl))
end
pcall(grant)
return counts and 1 or 0
--)lua"_lua
