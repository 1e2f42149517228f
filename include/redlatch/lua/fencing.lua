--R"lua(
-- Fencing tokens, for scripts that may give somebody the lock. They rise with the server's
-- clock, and are below 2^53: Lua's numbers are exact up to there.
--
-- Needs the local `fence`, the key of the last token.

-- The server's clock in microseconds, as it stood when it was asked first; 0 before.
local now = 0
local function clock()
  if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end

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
local function store_fencing_token(number, is_new, its_lease)
  local ttl = its_lease + 86400000
  if is_new then
    local done = redis.pcall('SET', fence, string.format('%.0f', number), 'PX', ttl)
    return done.err and done
  end
  local done = redis.pcall('PTTL', fence)
  if type(done) == 'number' and done < ttl then
    done = redis.pcall('PEXPIRE', fence, ttl)
  end
  return type(done) == 'table' and done
end
--)lua"_lua
