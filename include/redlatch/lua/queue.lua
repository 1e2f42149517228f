--R"lua(
-- The queue of those who wait for the lock, behind clock.lua.
--
-- Needs the locals `lock`, `queue`, `waiters`, `fence`, `server` and `key_type`.
--
-- A waiter's terms are its lock's key type, its lease, until when it counts as alive by the
-- server's clock, whether its client is subscribed to messages, whether it wants a fencing token.
--
-- An ACL may forbid any single command. So a waiter leaves the queue before the lock is written
-- in its name, and nothing behind that can fail. There is one function, and not one for each step:
-- to make one takes the server about as long as a command.

-- Gives the lock to the first waiter that can take it, and tells its client. A waiter that does
-- not live any more leaves the queue. One that lives, and whose client is not subscribed just
-- now, keeps its position for five seconds. `caller` is only taken out of the queue. `dead` is
-- given nothing: a late command may have put a token there that is released.
--
-- Returns the waiter and its lease. Else nil, nil, whether this run has left some unseen, and
-- whether it has removed some, so that another run sees more. Or nil, and why it could not read
-- the terms.
local function grant(caller, dead)
  -- On which channel a waiter's client is told: it begins with the key space, as the queue's key
  -- does; then comes the client's id, the 32 hexadecimal digits that its tokens begin with.
  local channels = string.match(string.sub(queue, 1, -1 - #lock), '^(.*)queue:[:{]') .. 'client:'
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
      local channel, absent
      if alive and is_subscribed == '1' then
        channel = channels .. string.sub(waiter, 1, 32)
        absent = redis.pcall('PUBSUB', 'NUMSUB', channel)[2] == 0
      end
      if absent then
        kept = kept + 1
        if tonumber(alive_until) > now + 5000000 then
          redis.pcall('HSET', waiters, waiter, string.format('%s %s %.0f %s %s',
            its_type, its_lease, now + 5000000, is_subscribed, is_fenced))
        end
      else
        redis.call('ZREM', queue, waiter)
        redis.call('HDEL', waiters, waiter)
        if alive then
          local refused = false
          if its_type == 's' then
            redis.call('SET', lock, waiter, 'PX', its_lease)
          else
            if key_type == 's' then
              redis.call('DEL', lock)
            end
            redis.call('HSET', lock, waiter, 1)
            local done = redis.pcall('PEXPIRE', lock, its_lease)
            refused = type(done) == 'table' and done
          end
          local number = '0'
          if is_fenced == '1' and not refused then
            -- #include "fencing.lua"
            local its_number = fencing_token(false)
            number = string.format('%.0f', its_number)
            refused = store_fencing_token(its_number, true, its_lease)
          end
          if refused then
            -- A string comes here where its fencing token was refused. A hash may have no end, and
            -- would lock everybody out for ever.
            if its_type == 's' then
              redis.call('DEL', lock)
            else
              redis.call('HDEL', lock, waiter)
            end
            error(refused.err, 0)
          end
          if channel then
            local its_time = time[1] .. string.sub('00000' .. time[2], -6)
            redis.pcall('PUBLISH', channel, its_lease .. ' ' .. its_time .. ' ' .. server .. ' '
              .. its_type .. ' ' .. number .. ' ' .. #waiter .. ' ' .. waiter .. lock)
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
