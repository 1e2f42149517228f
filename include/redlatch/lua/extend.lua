--R"lua(
-- Lets the lock last for the lease at least, from now.
--
-- KEYS  lock, fence. The last one only for a lock with fencing tokens.
-- ARGV  token, lease, last_fence. The last one is a fencing token that another master has given.
local lock, fence = KEYS[1], KEYS[2]
local token, lease, last_fence = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3] or 0)

-- #include "ours.lua"
if not ours then
  -- #include "only_on_master.lua"
  return 0
end

if lease > 0 and redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
if fence and last_fence > 0 and last_fence > (tonumber(redis.pcall('GET', fence)) or 0) then
  redis.call('SET', fence, string.format('%.0f', last_fence), 'PX', lease + 86400000)
elseif fence and redis.call('PTTL', fence) < lease + 86400000 then
  redis.call('PEXPIRE', fence, lease + 86400000)
end
return 1
--)lua"_lua
