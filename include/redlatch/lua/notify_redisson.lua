--R"lua(
-- A script that may free the lock, and tells those who wait for it with Redisson: they sleep
-- until a message says that it is free, or for as long as the lock was to last when they asked.
-- Behind a message they ask again: so they hear of a tombstone too, which is there for less. Their
-- channel is a companion of the lock, in a Cluster a sharded one.
local function free()
-- #include "script"
end

local answer = free()
if (answer == 1 or answer == 2) and (redis.pcall('EXISTS', KEYS[1]) ~= 1
    or redis.pcall('HEXISTS', KEYS[1], ARGV[1] .. ':min_hold') == 1) then
  local tagged = string.find(KEYS[1], '{', 1, true)
  local channel = 'redisson_lock__channel:' .. (tagged and KEYS[1] or '{' .. KEYS[1] .. '}')
  redis.pcall('PUBLISH', channel, '0')
  redis.pcall('SPUBLISH', channel, '0')
end
return answer
--)lua"_lua
