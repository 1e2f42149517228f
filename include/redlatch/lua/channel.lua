--R"lua(
-- On which channel a waiter's client is told. Its name begins with the key space, as the queue's
-- key does; then comes the client's id, the 32 hexadecimal digits that its tokens begin with.
local channels
local function channel_of(waiter)
  channels = channels
    or string.match(string.sub(KEYS[2], 1, -1 - #KEYS[1]), '^(.*)queue:[:{]') .. 'client:'
  return channels .. string.sub(waiter, 1, 32)
end
--)lua"_lua
