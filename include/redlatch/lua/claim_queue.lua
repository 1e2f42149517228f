--R"lua(
-- The queue of those who wait for a lock with claims, behind claims.lua.
--
-- Needs the locals `lock`, `queue`, `waiters`, `permits`, `server` and `kind`.

-- #include "tell_to_ask.lua"

-- A waiter's terms: what it waits for, its lease, until when it counts as alive by the server's
-- clock, whether its client is subscribed to messages, whether it wants a fencing token, its
-- weight, and how much there may be of all, as far as its client knows.
local function format_terms(its_lease, alive_until, is_subscribed, is_fenced, its_weight, its_limit)
  return string.format('%s %s %.0f %s %s %.0f %.0f',
    kind, its_lease, alive_until, is_subscribed, is_fenced, its_weight, its_limit)
end

-- How much there may be of all: as somebody has set it, or else as the one who asks believes.
local set_limit
local function most(its_limit)
  if permits and set_limit == nil then
    local value = redis.pcall('GET', permits)
    set_limit = type(value) == 'string' and tonumber(string.match(value, '^(%d+) ')) or false
  end
  return set_limit or its_limit
end

local function fits(its_weight, its_limit)
  if its_weight == all then
    return used == 0
  end
  return used + its_weight <= most(its_limit)
end

-- Gives a waiter its claim. Returns how long that lasts, and its fencing token, 0 without one.
local function let_in(waiter, its_lease, is_fenced, its_weight)
  local its_claim = its_weight .. ' ' .. waiter
  local its_ttl, failed = hold(its_claim, its_lease)
  local its_number, is_new = 0
  if is_fenced == '1' and its_ttl then
    its_number, is_new = number_for(its_claim)
    failed = store_fencing_token(its_number, is_new, its_lease)
    if failed then
      drop(its_claim)
    end
  end
  if failed then
    error(failed.err, 0)
  end
  return its_ttl, its_number
end

-- Whether somebody is subscribed to that channel itself, who is a waiter's client.
local hears = {}
local function is_heard(channel)
  if hears[channel] == nil then
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', channel)
    hears[channel] = subscribers.err ~= nil or subscribers[2] > 0
  end
  return hears[channel]
end

-- Lets in the first waiter, and those behind it, until one does not fit in: some 300 at most. The
-- next eight who listen are told then that they should ask. A waiter that does not live any more
-- leaves the queue. One that lives, and whose client is not subscribed just now, is passed over for
-- five seconds; one that wants more than there is of all, for as long as that lasts. `caller` is
-- let in without a message, and for the lease that it asks for now: its place may be that of one
-- before it. `dead` is not let in: a late command may have put a token there that is released.
--
-- Returns the caller's lease and fencing token, nil if it was not let in; whether somebody stands
-- in front who does not fit in; and whether there are more to be seen, and another run sees them.
local function grant(caller, dead, caller_lease)
  if used == 0 then
    -- An error in a slot that moves, where nobody may write a key that this script has deleted: it
    -- comes before somebody has left the queue.
    redis.call('EXISTS', lock)
  end
  local batch = redis.call('ZRANGE', queue, 0, 0)
  local seen, kept, given = 0, 0, 0
  local my_ttl, my_number, blocked
  while batch[1] and not blocked and seen < 10000 and given < 256 do
    for _, waiter in ipairs(batch) do
      local terms = redis.call('HGET', waiters, waiter) or ''
      local its_kind, its_lease, alive_until, is_subscribed, is_fenced, its_weight, its_limit =
        string.match(terms, '^(%a+) (%d+) (%d+) (%d) (%d) (%d+) (%d+)$')
      local alive = its_kind == kind and waiter ~= dead
        and (waiter == caller or tonumber(alive_until) > clock())
      its_weight, its_limit = tonumber(its_weight), tonumber(its_limit)
      local channel = channel_of(waiter)
      local tells = alive and is_subscribed == '1' and waiter ~= caller
      local absent = tells and not is_heard(channel)
      if absent or alive and its_weight < all and its_weight > most(its_limit) then
        kept = kept + 1
        if set_limit == 0 then
          blocked = true  -- as everybody is: nobody has to be looked at
          break
        end
        if absent and tonumber(alive_until) > now + 5000000 then
          redis.call('HSET', waiters, waiter,
            format_terms(its_lease, now + 5000000, is_subscribed, is_fenced, its_weight, its_limit))
        end
      elseif alive and not fits(its_weight, its_limit) then
        blocked = true
        break
      else
        redis.call('ZREM', queue, waiter)
        redis.call('HDEL', waiters, waiter)
        if alive then
          local lasts = waiter == caller and caller_lease or tonumber(its_lease)
          local its_ttl, its_number = let_in(waiter, lasts, is_fenced, its_weight)
          given = given + 1
          if waiter == caller then
            my_ttl, my_number = its_ttl, its_number
          elseif tells then
            local facts = string.format('%s %.0f %s %s:%.0f %.0f %d ',
              its_lease, now, server, kind, its_weight, its_number, #waiter)
            redis.pcall('PUBLISH', channel, facts .. waiter .. lock)
          end
        end
      end
    end
    seen = seen + #batch
    batch = blocked and {} or redis.pcall('ZRANGE', queue, kept, kept + 99)
  end
  local more = batch[1] ~= nil and kept < seen
  -- Whoever called this may not run it again: those in front do, as they ask for their own.
  local told = 0
  for i = 1, more and #batch or 0 do
    if told < 8 and is_heard(channel_of(batch[i])) then
      tell_to_ask(batch[i])
      told = told + 1
    end
  end
  return my_ttl, my_number, blocked, more
end
--)lua"_lua
