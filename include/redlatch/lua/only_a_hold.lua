--R"lua(
-- Refuses a hash that is somebody's data: a lock has the hold count of its owner, and nothing else.
--
-- Needs the locals `fields`, as HGETALL gives them, and `alone`: whether two owners are data, too.
local is_data = alone and fields[3]
for i = 2, #fields, 2 do
  is_data = is_data or not string.match(fields[i], '^[1-9]%d*$')
end
if is_data then
  return redis.error_reply('WRONGTYPE the hash is data, and no lock')
end
--)lua"_lua
