--R"lua(
-- The queue of those who wait for the lock, behind fencing.lua.
--
-- Needs the locals `lock`, `queue`, `waiters`, `server` and `key_type`.
--
-- An ACL may forbid any single command. So a waiter leaves the queue before the lock is written
-- in its name, and nothing behind that can fail.

-- #include "channel.lua"

-- A waiter's terms: its lock's key type, its lease, until when it counts as alive by the
-- server's clock, whether its client is subscribed to messages, whether it wants a fencing
-- token.
local function format_terms(its_type, its_lease, alive_until, is_subscribed, is_fenced)
  return string.format('%s %s %.0f %s %s',
    its_type, its_lease, alive_until, is_subscribed, is_fenced)
end

-- Writes the lock in a waiter's name. Returns its fencing token, 0 without one.
local function give(waiter, its_type, its_lease, is_fenced)
  local number = is_fenced == '1' and fencing_token(false) or 0
  local failed = false
  if its_type == 's' then
    redis.call('SET', lock, waiter, 'PX', its_lease)
  else
    if key_type == 's' then
      redis.call('DEL', lock)
    end
    redis.call('HSET', lock, waiter, 1)
    local done = redis.pcall('PEXPIRE', lock, its_lease)
    failed = type(done) == 'table' and done
  end
  if number > 0 and not failed then
    failed = store_fencing_token(number, true, its_lease)
  end
  if failed then
    -- Only a hash comes here, as a string and its token are written by the same command. A key
    -- without an end would lock everybody out for ever.
    redis.call('HDEL', lock, waiter)
    error(failed.err, 0)
  end
  return number
end

-- Gives the lock to the first waiter that can take it, and tells its client. A waiter that does
-- not live any more leaves the queue. One that lives, and whose client is not subscribed just
-- now, keeps its position for five seconds. `caller` is only taken out of the queue. `dead` is
-- given nothing: a late command may have put a token there that is released.
--
-- Returns the waiter and its lease. Else nil, nil, whether this run has left some unseen, and
-- whether it has removed some, so that another run sees more. Or nil, and why it could not read
-- the terms.
local function grant(caller, dead)
  local batch = redis.call('ZRANGE', queue, 0, 0)
  local seen, kept = 0, 0
  while batch[1] and seen < 10000 do
    for _, waiter in ipairs(batch) do
      if waiter == caller then
        redis.call('ZREM', queue, waiter)
        redis.call('HDEL', waiters, waiter)
        return waiter
      end
      local terms = redis.pcall('HGET', waiters, waiter) or ''
      if type(terms) == 'table' then
        return nil, terms
      end
      local its_type, its_lease, alive_until, is_subscribed, is_fenced =
        string.match(terms, '^(%a) (%d+) (%d+) (%d) (%d)$')
      local alive = its_type and tonumber(alive_until) > clock() and waiter ~= dead
      local channel = channel_of(waiter)
      local subscribers =
        alive and is_subscribed == '1' and redis.pcall('PUBSUB', 'NUMSUB', channel)
      if subscribers and subscribers[2] == 0 then
        kept = kept + 1
        if tonumber(alive_until) > now + 5000000 then
          redis.pcall('HSET', waiters, waiter,
            format_terms(its_type, its_lease, now + 5000000, is_subscribed, is_fenced))
        end
      else
        redis.call('ZREM', queue, waiter)
        redis.call('HDEL', waiters, waiter)
        if alive then
          local number = give(waiter, its_type, its_lease, is_fenced)
          if is_subscribed == '1' then
            local facts = string.format('%s %.0f %s %s %.0f %d ',
              its_lease, now, server, its_type, number, #waiter)
            redis.pcall('PUBLISH', channel, facts .. waiter .. lock)
          end
          return waiter, tonumber(its_lease)
        end
      end
    end
    seen = seen + #batch
    batch = redis.call('ZRANGE', queue, kept, kept + 99)
  end
  return nil, nil, batch[1] ~= nil, kept < seen
end
--)lua"_lua
