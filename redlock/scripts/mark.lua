-- A writer waits for the readers of these names: keep new ones away for a while (R33).  Those that are there may extend.
-- Or take that back, and tell readers who wait.  A name that nobody has is marked as well: otherwise the writer's own
-- rollback would let new readers in wherever it had taken the name.
--
-- KEYS  n lock keys
-- ARGV  token, ms ("0": take it back)
--
-- returns {1}
-- A key of another type is an error (WRONGTYPE).

local token, ms = ARGV[1], tonumber(ARGV[2])
for i = 1, #KEYS do
  local found, failure = writer(KEYS[i])
  if failure then
    return failure
  end
  if not found then
    if ms > 0 then
      put(KEYS[i], token, '-', ms)
    elseif redis.call('ZREM', KEYS[i], token) == 1 then
      settle(KEYS[i])
      redis.pcall('PUBLISH', KEYS[i] .. ':released', token)
    end
  end
end
return {1}
