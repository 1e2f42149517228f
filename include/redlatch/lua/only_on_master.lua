--R"lua(
-- Stands before the answer "not ours", which only a master may give: a replica may not have
-- heard yet that the lock is ours. The command is a write that changes nothing.
--
-- Needs the locals `lock`, `token` and `key_type`.
local probe = key_type == 's' and redis.pcall('SETRANGE', lock, 0, '')
  or redis.pcall('HDEL', lock, token)
if type(probe) == 'table' and string.find(probe.err, 'READONLY', 1, true) then
  return redis.error_reply('READONLY the server is a replica')
end
--)lua"_lua
