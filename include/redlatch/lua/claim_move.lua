--R"lua(
-- Gives the token's claim to the next token of the same process, with exactly its lease. The weight
-- stays, or a writer's becomes a reader's.
--
-- KEYS  lock, queue, waiters, and fence or permits
-- ARGV  token, lease, next_token, deadline, fenced, weight, next_weight
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local fence, permits = kind == 'shared' and KEYS[4], kind == 'permits' and KEYS[4]
local token, lease, next_token = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local deadline, fenced = tonumber(ARGV[4]), ARGV[5] == '1'
local weight, next_weight = tonumber(ARGV[6]), tonumber(ARGV[7])
local server = '-'

-- #include "clock.lua"
-- #include "fencing.lua"

-- #include "late.lua"

-- #include "claims.lua"
-- #include "claim_of.lua"
-- #include "claim_queue.lua"

local foreign, freed = count()
if foreign then
  return foreign
end
local waiting = redis.call('ZCARD', queue)
local ours = claim_of(token, weight)
local had = ours and tonumber(string.match(ours, '^%d+'))
if had and had < next_weight then
  ours = nil  -- a reader by now, and no reader becomes a writer
end
local moved, its_end
if not ours then
  -- By an earlier sending of this command.
  moved, its_end = claim_of(next_token, next_weight)
end
if not (ours or moved) then
  pcall(grant)  -- what has run out, nobody has given to them
  local key_type = 'z'
  -- #include "only_on_master.lua"
  return {0, waiting, 0}
end

-- The key stays: in a slot that moves, nobody may write one that this script has deleted. The first
-- write takes no memory, as a full server would forbid it.
local next_claim = next_weight .. ' ' .. next_token
redis.call('ZREM', lock, '')
local left, failed = hold(moved or next_claim, lease, its_end)
if ours and left then
  drop(ours)
end
local number, is_new = 0
if fenced and left then
  number, is_new = number_for(moved or next_claim, moved)
  failed = store_fencing_token(number, is_new, lease)
  if failed and ours then
    drop(next_claim)
  end
end
if freed or ours and had > next_weight then
  pcall(grant)
end
return failed or {1, waiting, number}
--)lua"_lua
