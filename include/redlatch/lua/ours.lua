--R"lua(
-- Whether the token has the lock: the local `ours`.
--
-- Needs the locals `lock`, `token` and `key_type`.
local ours
if key_type == 's' then
  ours = redis.call('GET', lock) == token
else
  ours = redis.call('HEXISTS', lock, token) == 1
end
--)lua"_lua
