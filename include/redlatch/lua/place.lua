--R"lua(
-- Gives the token its place in the queue, or lets it keep it; takes it away if queue_ttl is
-- negative, changes nothing if that is 0. Sets `position`, that is how many wait in front; nil
-- without a place. Or `failed`, and which key that is `about`: then there is no new place, and no
-- key that would stay for ever. Raises no error, as the lock may have been given to somebody.
--
-- Needs the locals of acquire.lua.
local queue_ttl = tonumber(ARGV[3])
local leaves = queue_ttl < 0
about = queue
if queue_ttl == 0 then
  position = redis.pcall('ZRANK', queue, token)
elseif not leaves then
  local alive_until = clock() + queue_ttl * 1000
  local last = redis.pcall('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local last_score = tonumber(last[2] or 0)
  -- A new key has no end. If one of the two is new, both get an end.
  local endless = true
  if last[1] then
    local left = redis.pcall('PTTL', waiters)
    endless = type(left) == 'table' or left < queue_ttl
  end
  -- Behind everybody else, whatever the server's clock did meanwhile.
  local score = last_score < now and time[1] .. string.sub('00000' .. time[2], -6)
    or string.format('%.0f', last_score + 1)
  local done = last.err and last or redis.pcall('ZADD', queue, 'NX', score, token)
  if type(done) == 'table' and not last.err and redis.pcall('ZREM', queue, '') == 0
    and tonumber(redis.pcall('ZRANK', queue, token)) then
    done = 0  -- a full server forbids what takes memory as a first write
  end
  if done == 0 then
    -- Never shorter: this may be an old command that arrives late.
    local before = redis.pcall('HGET', waiters, token) or ''
    before = type(before) == 'string' and string.match(before, '^%a %d+ (%d+) %d %d$') or 0
    alive_until = math.max(alive_until, before)
  end
  if type(done) == 'number' then
    leaves = true
    done = endless and redis.pcall('PEXPIRE', queue, 2 * queue_ttl)
    if type(done) ~= 'table' then
      about = waiters
      done = redis.pcall('HSET', waiters, token, key_type .. ' ' .. ARGV[2]
        .. string.format(' %.0f ', alive_until) .. ARGV[4] .. (fenced and ' 1' or ' 0'))
    end
    if type(done) ~= 'table' then
      leaves = false
      if endless then
        redis.pcall('PEXPIRE', waiters, 2 * queue_ttl)
      end
      position = last[1] and tonumber(redis.pcall('ZRANK', queue, token)) or 0
    end
  end
  failed = type(done) == 'table' and done
end
if leaves then
  redis.pcall('ZREM', queue, token)
  redis.pcall('HDEL', waiters, token)
end
if type(position) == 'table' then
  failed, position = position, nil
end
--)lua"_lua
