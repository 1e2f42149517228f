--R"lua(
-- #include "channel.lua"

-- Tells a waiter's client that it should ask now.
local function tell_to_ask(waiter)
  redis.pcall('PUBLISH', channel_of(waiter),
    string.format('0 0 - - 0 %d ', #waiter) .. waiter .. KEYS[1])
end
--)lua"_lua
