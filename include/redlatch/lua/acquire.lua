--R"lua(
-- Takes the lock for the token. If it is another's, the token gets a place in the queue.
--
-- KEYS  lock, queue, waiters, fence. Without the last three nobody waits.
-- ARGV  token, lease, queue_ttl, subscribed, server, deadline, fenced
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, server = ARGV[1], ARGV[5]
local deadline, fenced = tonumber(ARGV[6] or 0), ARGV[7] == '1'

-- #include "clock.lua"

-- #include "late.lua"

local owner, free, ours
local ttl = -2
if key_type == 's' then
  owner = redis.call('GET', lock)
  free, ours = not owner, owner == token
  if owner then
    ttl = redis.call('PTTL', lock)
  end
else
  ttl = redis.call('PTTL', lock)
  free = ttl == -2
  ours = not free and redis.call('HEXISTS', lock, token) == 1
end

local waiting = (free or ours) and queue and redis.pcall('ZCARD', queue) or 0

-- Somebody else has the lock, or waits for it.
if not ours and (waiting ~= 0 or not free) then
  if not queue then
    return {0, ttl}
  end

  -- An error about a companion key names it, as it is not the key that was asked for.
  local given, given_lease, unseen, removed, failed, about
  if type(waiting) == 'table' then
    failed, about = waiting, queue
  elseif free then
    -- #include "queue.lua"
    given, given_lease, unseen, removed = grant(token, nil)
    if type(given_lease) == 'table' then
      failed, about = given_lease, waiters
    end
  elseif key_type == 'h' then
    local most, fields = 16
    -- #include "only_a_hold.lua"
    owner = fields[1]
  end

  if failed or given ~= token and (given or not free or unseen and removed) then
    local position
    if not failed then
      -- #include "place.lua"
    end
    if given then
      -- No error may hide that.
      owner, ttl = given, given_lease
    elseif failed then
      failed.err = failed.err .. ' (' .. about .. ')'
      return failed
    end
    -- A token of this library begins with its client's id and is no longer than this. A foreign one
    -- may be anything.
    owner = owner or ''
    local grants = string.match(owner, '^%x+:()') == 34
    if grants and (string.find(owner, ':k', 34, true) or string.find(token, ':k', 34, true)) then
      -- #include "key_space.lua"
      grants = knows_queue(owner)
    end
    return {0, ttl, position or -1, clock(), grants and 1 or 0, string.sub(owner, 1, 160)}
  end

  if unseen then
    redis.pcall('ZREM', queue, token)
    redis.pcall('HDEL', waiters, token)
  end
  waiting = redis.call('ZCARD', queue)
end

-- Writes the lock also where that changes nothing: replicas are asked whether they have what was
-- written here. ARGV[2] is the text of a number, which would have to be written out again.
local lease = tonumber(ARGV[2])
local longer = ttl > lease
if fenced then
  clock()  -- what may fail comes first
end
local done
if free and key_type == 's' then
  done = redis.call('SET', lock, token, 'PX', ARGV[2])
else
  if free then
    redis.call('HSET', lock, token, '1')
  end
  done = redis.pcall('PEXPIRE', lock, longer and ttl or ARGV[2])
end
local failed = type(done) == 'table' and done.err and done
local number = 0
if fenced and not failed then
  -- #include "fencing.lua"
  local is_new
  number, is_new = fencing_token(ours)
  failed = store_fencing_token(number, is_new, lease)
end
if failed and free then
  -- A string comes here where its fencing token was refused. A hash may have no end, and would lock
  -- everybody out for ever.
  if key_type == 's' then
    redis.call('DEL', lock)
  else
    redis.call('HDEL', lock, token)
  end
end
return failed or {1, longer and ttl or lease, tonumber(waiting) or 0, now, number}
--)lua"_lua
