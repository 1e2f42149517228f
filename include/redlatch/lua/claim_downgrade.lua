--R"lua(
-- Makes a reader of a writer, without a moment between. Readers who wait in front are let in.
--
-- KEYS  lock, queue, waiters, fence
-- ARGV  token, server
local lock, queue, waiters, fence, permits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], false
local token, server = ARGV[1], ARGV[2]

-- #include "clock.lua"
-- #include "fencing.lua"
-- #include "claims.lua"
-- #include "claim_of.lua"
-- #include "claim_queue.lua"

local foreign = count()
if foreign then
  return foreign
end
local ours, its_end = claim_of(token, all)
if not ours then
  pcall(grant)
  local key_type = 'z'
  -- #include "only_on_master.lua"
  return 0
end
if ours == all .. ' ' .. token then
  -- A full server forbids what takes memory as a first write, and an ACL may forbid either. The
  -- writer's claim goes last: then an error leaves it.
  redis.call('ZREM', lock, '')
  redis.call('ZADD', lock, its_end, '1 ' .. token)
  redis.call('ZREM', lock, ours)
  add(1 - all)
end
pcall(grant)
return 1
--)lua"_lua
