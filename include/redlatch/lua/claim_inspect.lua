--R"lua(
-- Says how many claims there are, or how many permits are taken, for how long, and how many wait.
-- Reads only, and shows two hundred of the claims.
--
-- KEYS  lock, queue, waiters, and fence or permits
-- ARGV  token, which is empty
local lock, queue, token, permits = KEYS[1], KEYS[2], ARGV[1], kind == 'permits' and KEYS[4]

local waiting = tonumber(redis.pcall('ZCARD', queue)) or 0
local value = permits and redis.pcall('GET', permits)
local set_limit = type(value) == 'string' and tonumber(string.match(value, '^(%d+) ')) or -1
local sum = redis.call('ZSCORE', lock, kind)
if not sum then
  if redis.call('EXISTS', lock) == 1 then
    return redis.error_reply('WRONGTYPE the sorted set is no lock of this kind')
  end
  local key_type = 'z'
  -- #include "only_on_master.lua"
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local claims, ttl, number = {}, -2, 0
if sum then
  claims = redis.call('ZRANGEBYSCORE', lock, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 200)
end
if #claims > 0 then
  local last = redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')
  ttl = math.ceil((last[2] - now) / 1000)
  number = redis.call('ZCOUNT', lock, '(' .. now, '+inf')
  if kind == 'permits' then
    number = -sum
    for _, claim in ipairs(redis.call('ZRANGEBYSCORE', lock, 0, now)) do
      number = number - string.match(claim, '^%d+')
    end
  end
end
local answer = {'', number, ttl, waiting, set_limit}
for i = 1, #claims, 2 do
  answer[#answer + 1] = claims[i]
  answer[#answer + 1] = math.ceil((claims[i + 1] - now) / 1000)
end
return answer
--)lua"_lua
