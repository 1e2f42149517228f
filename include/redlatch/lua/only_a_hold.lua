--R"lua(
-- Refuses a hash that is somebody's data: a lock has the hold count of its owner, and nothing else.
-- Sets `fields`, as HGETALL gives them. One with more than that is not read: it may be large.
--
-- Needs the locals `lock` and `fields`, and `most`: how many owners are not data yet.
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
