--R"lua(
-- Gives the lock to the next token of the same process, with exactly its lease.
--
-- KEYS  lock, queue, fence. Without the last two nobody waits.
-- ARGV  token, lease, next_token, deadline, fenced
local lock, queue, fence = KEYS[1], KEYS[2], KEYS[3]
local token, lease, next_token = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local deadline, fenced = tonumber(ARGV[4] or 0), ARGV[5] == '1'

-- #include "clock.lua"

-- #include "late.lua"

-- `moved` by an earlier sending of this command.
local ours, moved
if key_type == 's' then
  local owner = redis.call('GET', lock)
  ours, moved = owner == token, owner == next_token
else
  ours = redis.call('HEXISTS', lock, token) == 1
  moved = not ours and redis.call('HEXISTS', lock, next_token) == 1
end
local waiting = queue and tonumber(redis.pcall('ZCARD', queue)) or 0
if not (ours or moved) then
  -- #include "only_on_master.lua"
  return {0, waiting, 0}
end

-- #include "fencing.lua"

local number, is_new = 0, false
if fenced then
  number, is_new = fencing_token(moved)
end
-- Writes the lock also where that changes nothing: replicas are asked whether they have it.
local kept_for = ARGV[2]
local ttl = moved and redis.call('PTTL', lock) or 0
if ttl > lease then
  kept_for = ttl
end
local failed = false
-- The first write takes no memory, as a full server would forbid it.
if key_type == 's' then
  redis.pcall('PEXPIRE', lock, kept_for)
  redis.call('SET', lock, next_token, 'PX', kept_for)
else
  if ours then
    redis.pcall('HDEL', lock, '')
    redis.call('HSET', lock, next_token, 1)
  end
  -- Comes last, as it may delete a key whose end comes meanwhile: what is written after that would
  -- last for ever. Where the ACL forbids it, nothing has changed.
  local done = redis.pcall('PEXPIRE', lock, kept_for)
  if type(done) == 'table' then
    if ours then
      redis.call('HDEL', lock, next_token)
    end
    return done
  end
  if ours then
    done = redis.pcall('HDEL', lock, token)
    failed = type(done) == 'table' and done
  end
end
if fenced and not failed then
  failed = store_fencing_token(number, is_new, lease)
end
if failed and not moved then
  -- The next token may be in already.
  redis.call('DEL', lock)
end
return failed or {1, waiting, number}
--)lua"_lua
