-- What release.lua does for a writer, for a reader (R33).  The caller leaves the readers of every name.  The last one to
-- leave is announced to the waiters (R24).  Where a downgrade did not arrive, the caller's own key is deleted.
-- Others are left alone (P8).
--
-- KEYS  n lock keys; and where an expiry is confirmed by more than one clock (R35) their n grant keys: the caller is not
--       on record any more
-- ARGV  token, and with grant keys n
--
-- returns {1, listeners}    every name was the caller's; how many connections heard of it
--         {0, holder}       not all were: the token that has one for itself, "" if none has ("''": somebody does, with an empty one)
--                           (of what is longer than any token of ours, the first 128 bytes)
-- A key of another type is an error (WRONGTYPE), but the others are released.

local token, ours, other, listeners, failure = ARGV[1], true, '', 0, nil
local n = tonumber(ARGV[2]) or #KEYS
forget(n + 1, token)
for i = 1, n do
  local found, wrong = writer(KEYS[i])
  local free = false
  if found == token then
    redis.call('DEL', KEYS[i])
    free = true
  elseif not found and not wrong and redis.call('ZREM', KEYS[i], token) == 1 then
    settle(KEYS[i])
    free = redis.call('ZCOUNT', KEYS[i], '0', '+inf') == 0
  else
    ours = false
    failure = wrong or failure
    other = found == '' and "''" or found or other
  end
  if free then
    -- pcall: where PUBLISH is not permitted the key is gone all the same, and waiters poll (R24)
    local heard = redis.pcall('PUBLISH', KEYS[i] .. ':released', token)
    if type(heard) == 'number' then
      listeners = listeners + heard
    end
  end
end
if failure then
  return failure
end
if ours then
  return {1, listeners}
end
return {0, string.sub(other, 1, 128)}
