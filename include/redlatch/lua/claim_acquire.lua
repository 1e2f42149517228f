--R"lua(
-- Takes a claim for the token. If it does not fit in, the token gets a place in the queue.
--
-- KEYS  lock, queue, waiters, and fence or permits
-- ARGV  token, lease, queue_ttl, subscribed, server, deadline, fenced, weight, limit
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local fence, permits = kind == 'shared' and KEYS[4], kind == 'permits' and KEYS[4]
local token, lease, queue_ttl, subscribed = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local server, deadline, fenced = ARGV[5], tonumber(ARGV[6]), ARGV[7] == '1'
local weight, limit = tonumber(ARGV[8]), tonumber(ARGV[9])

-- #include "clock.lua"
-- #include "fencing.lua"

-- #include "late.lua"

-- #include "claims.lua"
-- #include "claim_of.lua"
-- #include "claim_queue.lua"
-- #include "key_space.lua"

local foreign = count()
if foreign then
  return foreign
end

-- Its fencing token comes last, so that no error leaves one without a claim.
local function take(claim, had)
  local left, failed = hold(claim, lease, had)
  local number, is_new = 0
  if fenced and not failed then
    number, is_new = number_for(claim, had)
    failed = store_fencing_token(number, is_new, lease)
    if failed and not had then
      drop(claim)
    end
  end
  return failed or {1, left, tonumber(redis.pcall('ZCARD', queue)) or 0, now, number}
end

local ours, its_end = claim_of(token, weight)
local waiting = redis.call('ZCARD', queue)
if ours then
  if waiting > 0 then
    pcall(grant)  -- what has run out meanwhile, nobody has given to them
  end
  return take(ours, its_end)
end
local claim = weight .. ' ' .. token
if waiting == 0 and fits(weight, limit) then
  return take(claim)
end

local function leave()
  redis.call('ZREM', queue, token)
  redis.call('HDEL', waiters, token)
end

local had_place = redis.call('ZRANK', queue, token)

-- Takes a place in the queue, or keeps it. Returns an error, or nothing: with an error there is no
-- new place, and no key that would stay for ever.
local function take_place()
  local alive_until = clock() + queue_ttl * 1000
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  -- A new key has no end. If one of the two is new, both get an end.
  local endless = not last or redis.call('PTTL', waiters) < queue_ttl
  if had_place then
    redis.call('ZREM', queue, '')  -- a full server forbids what takes memory as a first write
  end
  -- Behind everybody else, whatever the server's clock did meanwhile.
  if redis.call('ZADD', queue, 'NX', exact(math.max(now, (last or 0) + 1)), token) == 0 then
    -- Never shorter: this may be an old command that arrives late.
    local before = redis.call('HGET', waiters, token) or ''
    alive_until = math.max(alive_until, string.match(before, '^%a+ %d+ (%d+) ') or 0)
  end
  local done = endless and redis.pcall('PEXPIRE', queue, 2 * queue_ttl)
  if type(done) ~= 'table' then
    done = redis.pcall('HSET', waiters, token,
      format_terms(ARGV[2], alive_until, subscribed, fenced and '1' or '0', weight, limit))
  end
  if type(done) == 'table' then
    leave()
    return done
  end
  if endless then
    redis.call('PEXPIRE', waiters, 2 * queue_ttl)
  end
end

-- One who comes is let in, or takes its place last: what fails before leaves none.
local failed = had_place and queue_ttl > 0 and take_place()
if failed then
  return failed
end
local left, number, blocked, unseen = grant(token, nil, lease)
if left then
  return {1, left, tonumber(redis.pcall('ZCARD', queue)) or 0, now, number}
end
if queue_ttl < 0 then
  leave()
end
-- All who wait are passed over, or have been dead.
if not (had_place and queue_ttl > 0) and not blocked and not unseen and fits(weight, limit) then
  return take(claim)
end
failed = not had_place and queue_ttl > 0 and take_place()
if failed then
  return failed
end
if queue_ttl < 0 and blocked then
  pcall(grant)  -- the one in front, who did not fit in, may have been this one
end

keep_setting(lease)  -- one that lets nobody in is in use while somebody asks

-- The claim whose end may make room, if nobody gives anything back. A writer waits for the last
-- one. Those near it may be of clients that do not know this queue.
local last = weight == all
local claims = redis.call('ZRANGE', lock, last and -16 or 1, last and -1 or 16, 'WITHSCORES')
local at = last and #claims - 1 or 1
local ttl = claims[at] and math.max(math.ceil((claims[at + 1] - clock()) / 1000), 0) or -2
local owner = string.match(claims[at] or '', '^%d+ (.*)$') or ''
local grants = 1
for i = 1, #claims, 2 do
  local its_owner = string.match(claims[i], '^%d+ (.*)$')
  if its_owner and not knows_queue(its_owner) then
    owner, grants = its_owner, 0
  end
end
-- Who has left may have been the last one: while a slot moves, nobody may read a key that this
-- script has deleted.
local place = queue_ttl >= 0 and redis.call('ZRANK', queue, token) or -1
return {0, ttl, place, clock(), grants, string.sub(owner, 1, 160)}
--)lua"_lua
