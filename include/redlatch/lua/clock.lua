--R"lua(
-- The server's clock in microseconds, as it stood when it was asked first; 0 before. `time` is what
-- was answered: to make a text of that is much cheaper than to write such a number out.
local now, time = 0, nil
local function clock()
  if now == 0 then
    time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end
--)lua"_lua
