--R"lua(
-- Fencing tokens, for scripts that may give somebody the lock. They rise with the server's
-- clock, and are below 2^53: Lua's numbers are exact up to there.
--
-- Needs the local `fence`, the key of the last token, and clock.lua before it.

-- The stored token if the holder has the lock `already`, else the next one; and whether it is
-- new. If the stored one is lost, or overwritten with something else, the clock says the next.
local function fencing_token(already)
  local last = tonumber(redis.pcall('GET', fence))
  if not (last and last > 0 and last < 9007199254740991) then
    last, already = 0, false
  end
  return already and last or math.max(last + 1, clock()), not already
end

-- Runs behind the write of the lock, so that no error there leaves a token. The token is kept a
-- day longer than the lock. Returns an error, or nothing.
local function store_fencing_token(new_number, is_new, lock_lease)
  local lasts = lock_lease + 86400000
  if is_new then
    local stored = redis.pcall('SET', fence, string.format('%.0f', new_number), 'PX', lasts)
    return stored.err and stored
  end
  local left = redis.pcall('PTTL', fence)
  if type(left) == 'number' and left < lasts then
    left = redis.pcall('PEXPIRE', fence, lasts)
  end
  return type(left) == 'table' and left
end
--)lua"_lua
