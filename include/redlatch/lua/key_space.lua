--R"lua(
-- Whether the release of a client's token tells those who wait in the queue of `token`: both have
-- the same key space, which is the mark behind the last number of a token. Without one it is the
-- usual key space.
local function mark_in(its_token)
  return string.find(its_token, ':k', 34, true) and string.match(its_token, ':k(%x+)[:_%l]*$')
end

local function knows_queue(its_token)
  return mark_in(its_token) == mark_in(token)
end
--)lua"_lua
