--R"lua(
-- Refuses a hash that is somebody's data: a lock has the hold count of its owner, and nothing else.
-- One with more than `most` fields is not read, as it may be large. Sets `fields`, as HGETALL gives
-- them.
--
-- Needs the locals `lock`, `most` and `fields`.
local owners = redis.pcall('HLEN', lock)
local is_data = type(owners) == 'number' and owners > most
fields = is_data and {} or redis.call('HGETALL', lock)
for i = 2, #fields, 2 do
  is_data = is_data or not string.match(fields[i], '^[1-9]%d*$')
end
if is_data then
  return redis.error_reply('WRONGTYPE the hash is data, and no lock')
end
--)lua"_lua
