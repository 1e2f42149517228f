--R"lua(
-- Lets the token's claim last for the lease at least, from now. Takes none that is not there.
--
-- KEYS  lock, queue, waiters, and fence or permits; the lock alone while they are at two servers,
--       as their slot moves: then nobody is served
-- ARGV  token, lease, last_fence, weight, asks. A last_fence above 0 is a fencing token that
--       another master has given. One that `asks` is told how many wait, and extends nothing then.
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local fence, permits = kind == 'shared' and KEYS[4], kind == 'permits' and KEYS[4]
local token, lease, last_fence = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local weight, asks = tonumber(ARGV[4]), ARGV[5] == '1'
local server = '-'

-- #include "clock.lua"
-- #include "fencing.lua"
-- #include "claims.lua"
-- #include "claim_of.lua"
-- #include "claim_queue.lua"

local function serve()
  if queue then
    pcall(grant)
  end
end

local foreign, freed = count()
if foreign then
  return foreign
end
local ours, its_end = claim_of(token, weight)
if not ours or tonumber(its_end) <= clock() then
  serve()  -- what has run out, nobody has given to them
  local key_type = 'z'
  -- #include "only_on_master.lua"
  return asks and {0, tonumber(redis.pcall('ZCARD', queue)) or 0} or 0
end

local waiting = asks and redis.call('ZCARD', queue) or 0
if waiting > 0 then
  -- Who asks goes past nobody, and has no use for a claim that lasts longer.
  if freed then
    pcall(grant)
  end
  return {1, waiting}
end
hold(ours, lease, its_end)
if weight == 1 and ours ~= weight .. ' ' .. token then
  -- A reader by now, and the server has not heard of it.
  redis.call('ZREM', lock, ours)
  redis.call('ZADD', lock, exact(math.max(clock() + lease * 1000, its_end)), '1 ' .. token)
  add(1 - all)
  freed = true
end
if freed then
  serve()
end
if fence and last_fence > 0 and last_fence > (tonumber(redis.pcall('GET', fence)) or 0) then
  store_fencing_token(last_fence, true, lease)
elseif fence and redis.call('EXISTS', fence) == 1 then
  store_fencing_token(0, false, lease)
end
return asks and {1, waiting} or 1
--)lua"_lua
