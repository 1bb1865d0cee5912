-- A writer waits for the readers of these names: keep new ones away for a while (R33).  Those that are there may extend.
-- Or take that back, and tell readers who wait.  A free name is marked as well: otherwise the writer's own
-- rollback would let new readers in wherever it had taken the name.
--
-- KEYS  n lock keys
-- ARGV  token, ms ("0": take it back)
--
-- returns {1}
-- A key of another type is an error (WRONGTYPE).

-- (readers.lua)
-- (tell.lua)

local token, ms = ARGV[1], tonumber(ARGV[2])
for _, key in ipairs(KEYS) do
  local found, failure = writer(key)
  if failure then
    return failure
  elseif not found and ms > 0 then
    put(key, token, '-', ms)
  elseif not found and redis.call('ZREM', key, token) == 1 then
    tidy(key)
    tell(key .. ':released', token)
  end
end
return {1}
