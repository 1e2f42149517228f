--R"lua(
-- Writes the hold count of the token's lock, a hash, and lets it last for the lease at least,
-- from now.
--
-- KEYS  lock, fence. The last one only for a lock with fencing tokens.
-- ARGV  token, hold_count, lease
local lock, fence = KEYS[1], KEYS[2]
local token, hold_count, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])

if redis.call('HEXISTS', lock, token) == 0 then
  -- #include "only_on_master.lua"
  return 0
end

redis.call('HSET', lock, token, hold_count)
if lease > 0 and redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
if fence and redis.call('PTTL', fence) < lease + 86400000 then
  redis.call('PEXPIRE', fence, lease + 86400000)
end
return 1
--)lua"_lua
