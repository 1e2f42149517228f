--R"lua(
-- The claim that the token has there, and its end. One that began as a writer's may be a reader's
-- by now, or not yet: a downgrade may cross any command.
local function claim_of(its_token, its_weight)
  local claim = its_weight .. ' ' .. its_token
  local its_end = redis.call('ZSCORE', lock, claim)
  if not its_end and kind == 'shared' then
    claim = (its_weight == all and 1 or all) .. ' ' .. its_token
    its_end = redis.call('ZSCORE', lock, claim)
  end
  return its_end and claim, its_end
end
--)lua"_lua
