--R"lua(
-- A lock with claims, behind fencing.lua: a sorted set, where each claim has a lease of its own.
--
--     "<weight> <token>"  -> its end by the server's clock, in microseconds
--     kind                -> minus the sum of all weights, and so in front of the claims
--
-- A reader weighs 1, who has k permits k, a writer `all`: nothing fits in beside it. Sum and claims
-- are one key, so that they cannot be lost apart.
--
-- Needs the locals `lock`, `kind` and `permits`, the key of a number of permits, if there is one.
local all = 1000000000
local used = 0

local function exact(value)
  return string.format('%.0f', value)
end

-- Adds to the sum, or takes away from it.
local function add(change)
  used = used + change
  if used > 0 then
    redis.call('ZADD', lock, -used, kind)
  else
    redis.call('DEL', lock)
  end
end

local function drop(claim)
  redis.call('ZREM', lock, claim)
  add(-string.match(claim, '^%d+'))
end

-- Learns how much is taken. Claims whose lease is over are thrown out, a thousand at most: what is
-- left of them only makes the lock refuse for longer. Returns an error if the key is of another
-- kind; else nil, and whether there is more room now.
local function count()
  local sum = redis.call('ZSCORE', lock, kind)
  if not sum then
    if redis.call('EXISTS', lock) == 1 then
      return redis.error_reply('WRONGTYPE the sorted set is no lock of this kind')
    end
    return nil, false
  end
  used = -sum
  local over = redis.call('ZRANGEBYSCORE', lock, 0, exact(clock()), 'LIMIT', 0, 1000)
  if #over > 0 then
    local freed = 0
    for _, claim in ipairs(over) do
      freed = freed + string.match(claim, '^%d+')
    end
    redis.call('ZREM', lock, unpack(over))
    add(-freed)
  end
  return nil, #over > 0
end

-- A number of permits that was set is forgotten a day after its last use.
local function keep_setting(its_lease)
  local ttl = permits and redis.pcall('PTTL', permits)
  if type(ttl) == 'number' and ttl >= 0 and ttl < its_lease + 86400000 then
    redis.pcall('PEXPIRE', permits, its_lease + 90000000)
  end
end

-- Lets a claim last for the lease at least, from now, and the key as long as its last claim, as
-- somebody may have changed the key's end by hand. Where the claim `had` no end, it is a new one.
-- Returns how long it lasts, or nil and an error: then there is no new claim.
local function hold(claim, its_lease, had)
  local its_end = math.max(clock() + its_lease * 1000, had or 0)
  local left = math.ceil((its_end - now) / 1000)
  local last = used > 0 and redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2] or 0
  local key_left = math.max(left, math.ceil((last - now) / 1000))
  if had then
    -- A full server forbids what takes memory as a first write. The end of the key comes last, as
    -- PEXPIRE may delete it, and what is written after that would last for ever.
    redis.call('ZREM', lock, '')
    redis.call('ZADD', lock, exact(its_end), claim)
    redis.call('PEXPIRE', lock, key_left)
  else
    used = used + string.match(claim, '^%d+')
    redis.call('ZADD', lock, exact(its_end), claim, -used, kind)
    local done = redis.pcall('PEXPIRE', lock, key_left)
    if type(done) == 'table' then
      -- A key without an end would lock everybody out for ever.
      drop(claim)
      return nil, done
    end
  end
  keep_setting(its_lease)
  return left
end

-- The fencing token of a claim: a new writer gets a new one, readers share that of the last writer.
local function number_for(claim, had)
  local is_writer = string.match(claim, '^%d+') == exact(all)
  return fencing_token(had or not is_writer)
end
--)lua"_lua
