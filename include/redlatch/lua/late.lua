--R"lua(
-- Refuses a command that comes when nobody waits for its answer any more.
--
-- Needs the local `deadline`, by the server's clock in microseconds, 0 for none, and clock.lua
-- before it.
if deadline > 0 and clock() > deadline then
  return redis.error_reply(string.format('LATE %.0f is the time, too late for this command', now))
end
--)lua"_lua
