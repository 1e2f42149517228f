--R"lua(
-- Gives the token's claim back, or its place in the queue. Those who wait are let in. Where this
-- is `forced` by somebody else, the place of one that has no claim stays.
--
-- KEYS  lock, queue, waiters, and fence or permits
-- ARGV  token, server, weight. Where permits are `forced` back, 0 for any number of them: one, or
--       more among the first 10,000 claims.
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local fence, permits = kind == 'shared' and KEYS[4], kind == 'permits' and KEYS[4]
local token, server, weight = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- #include "clock.lua"
-- #include "fencing.lua"
-- #include "claims.lua"
-- #include "claim_of.lua"
-- #include "claim_queue.lua"

local foreign = count()
if forced and weight == 0 and not foreign then
  weight = 1
  local claims = claim_of(token, 1) and {} or redis.call('ZRANGE', lock, 1, 10000)
  for _, claim in ipairs(claims) do
    local found, its_token = string.match(claim, '^(%d+) (.*)$')
    if its_token == token then
      weight = tonumber(found)
    end
  end
end
local ours = not foreign and claim_of(token, weight)
if ours then
  drop(ours)
else
  -- On a replica this fails, and says nothing about whose the lock is.
  redis.call('ZREM', foreign and queue or lock, '')
end
-- The release of a claim takes its token out below, where it stands in front.
local leaves = (forced and ours) or not (forced or ours)
if leaves and redis.pcall('ZREM', queue, token) == 1 then
  redis.pcall('HDEL', waiters, token)
end
if foreign then
  return foreign
end
-- Who leaves the queue may have stood in front of those behind.
local done, _, _, _, unseen = pcall(grant, nil, not forced and token)
if done and unseen then
  return ours and 2 or -1
end
return ours and 1 or 0
--)lua"_lua
