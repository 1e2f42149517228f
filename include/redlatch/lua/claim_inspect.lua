--R"lua(
-- Says who has claims, for how long, and how many wait. Reads only, and shows two hundred of them.
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
local now = time[1] * 1000000 + time[2]
local claims = sum and redis.call('ZRANGEBYSCORE', lock, string.format('(%.0f', now), '+inf',
  'WITHSCORES', 'LIMIT', 0, 200) or {}
local answer = {'', #claims / 2, -2, waiting, set_limit}
for i = 1, #claims, 2 do
  local ttl = math.ceil((claims[i + 1] - now) / 1000)
  answer[3] = math.max(answer[3], ttl)
  answer[#answer + 1] = claims[i]
  answer[#answer + 1] = ttl
end
return answer
--)lua"_lua
