--R"lua(
-- Takes the lock for the token. If it is another's, the token gets a place in the queue.
--
-- KEYS  lock, queue, waiters, fence. Without the last three nobody waits.
-- ARGV  token, lease, queue_ttl, subscribed, server, deadline, fenced
local lock, queue, waiters, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, lease, queue_ttl, subscribed = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local server, deadline, fenced = ARGV[5], tonumber(ARGV[6] or 0), ARGV[7] == '1'

-- #include "fencing.lua"

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
  local function about(key, failed)
    failed.err = failed.err .. ' (' .. key .. ')'
    return failed
  end

  if type(waiting) == 'table' then
    return about(queue, waiting)
  end

  -- #include "queue.lua"
  -- #include "key_space.lua"

  local function leave()
    redis.pcall('ZREM', queue, token)
    redis.pcall('HDEL', waiters, token)
  end

  -- Takes a place in the queue, or keeps it; gives it up if queue_ttl is negative, changes nothing
  -- if it is 0. Returns the position, that is how many wait in front, or -1 without a place. Or
  -- nil and an error: then there is no new place, and no key that would stay for ever.
  local function take_place()
    if queue_ttl < 0 then
      leave()
      return -1
    elseif queue_ttl == 0 then
      local position = redis.pcall('ZRANK', queue, token)
      if type(position) == 'table' then
        return nil, about(queue, position)
      end
      return position or -1
    end
    local alive_until = clock() + queue_ttl * 1000
    local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')
    if last.err then
      return nil, about(queue, last)
    end
    last = last[2]
    -- A new key has no end. If one of the two is new, both get an end.
    local endless = not last or redis.call('PTTL', waiters) < queue_ttl
    -- Behind everybody else, whatever the server's clock did meanwhile.
    local score = string.format('%.0f', math.max(now, (last or 0) + 1))
    if redis.call('ZADD', queue, 'NX', score, token) == 0 then
      -- Never shorter: this may be an old command that arrives late.
      local before = redis.call('HGET', waiters, token) or ''
      alive_until = math.max(alive_until, string.match(before, '^%a %d+ (%d+) %d %d$') or 0)
    end
    local done = endless and redis.pcall('PEXPIRE', queue, 2 * queue_ttl)
    if type(done) ~= 'table' then
      done = redis.pcall('HSET', waiters, token,
        format_terms(key_type, ARGV[2], alive_until, subscribed, fenced and '1' or '0'))
    end
    if type(done) == 'table' then
      leave()
      return nil, about(waiters, done)
    end
    if endless then
      redis.call('PEXPIRE', waiters, 2 * queue_ttl)
    end
    return last and tonumber(redis.pcall('ZRANK', queue, token)) or 0
  end

  local given, its_lease, unseen, removed
  if free then
    given, its_lease, unseen, removed = grant(token, nil)
    if type(its_lease) == 'table' then
      return about(waiters, its_lease)
    end
  elseif key_type == 'h' then
    owner = redis.call('HKEYS', lock)[1]
  end

  if given ~= token and (given or not free or unseen and removed) then
    local position, failed
    -- The token takes its place last: what fails before leaves none. No error may hide a grant.
    if given then
      owner, ttl = given, its_lease
      local done, at = pcall(take_place)
      position = done and at or -1
    else
      position, failed = take_place()
      if failed then
        return failed
      end
    end
    -- A token of this library begins with its client's id and is no longer than this. A foreign one
    -- may be anything.
    owner = owner or ''
    local grants = string.match(owner, '^%x+:()') == 34 and knows_queue(owner) and 1 or 0
    return {0, ttl, position, clock(), grants, string.sub(owner, 1, 160)}
  end

  if unseen then
    leave()
  end
  waiting = redis.call('ZCARD', queue)
end

-- Writes the lock also where that changes nothing: replicas are asked whether they have what was
-- written here. ARGV[2] is the text of a number, which would have to be written out again.
local number, is_new = 0, false
if fenced then
  number, is_new = fencing_token(ours)
end
local longer = ttl > lease
local failed = false
if free and key_type == 's' then
  redis.call('SET', lock, token, 'PX', ARGV[2])
else
  if free then
    redis.call('HSET', lock, token, '1')
  end
  local done = redis.pcall('PEXPIRE', lock, longer and ttl or ARGV[2])
  failed = type(done) == 'table' and done
end
if fenced and not failed then
  failed = store_fencing_token(number, is_new, lease)
end
if failed and free then
  -- Only a hash comes here. A key without an end would lock everybody out for ever.
  redis.call('HDEL', lock, token)
end
return failed or {1, longer and ttl or lease, tonumber(waiting) or 0, now, number}
--)lua"_lua
