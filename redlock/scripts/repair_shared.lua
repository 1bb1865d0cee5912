-- What repair.lua does for a writer, for a reader: put it back among the readers of a master that lost or never had it,
-- after an extension was won (R14, R33).  Does nothing where somebody has a name for itself.  The greater of two
-- fences stays, and so does a reader who stays longer, as in repair.lua.  Nor where somebody else is on record (R35).
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off); and where an expiry is confirmed by more than one
--       clock (R35) their n grant keys
-- ARGV  n, token, ttl in ms, fence of the lease (decimal), life of a fence key in ms
--
-- returns {1}    the caller reads every name here now, and the fence keys live on (R20)
--         {0}    nothing was changed
-- A key of another type is an error (WRONGTYPE), and nothing is changed.  What is no fencing token stays where it is.

local n, token, fence = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[4])

for i = 1, n do
  local found, failure = writer(KEYS[i])
  if failure then
    return failure
  end
  if found and found ~= token then
    return {0}
  end
end
for i = 2 * n + 1, #KEYS do
  if (on_record(KEYS[i]) or token) ~= token then
    return {0}
  end
end
local greater = {}
for i = n + 1, math.min(#KEYS, 2 * n) do
  local stored = redis.call('GET', KEYS[i]) or '0'
  greater[i] = string.match(stored, '^%d+$') and fence > tonumber(stored)
end
for i = 1, n do
  if writer(KEYS[i]) then
    share(KEYS[i], token, tonumber(ARGV[3]))
  else
    local stays = tonumber(redis.call('ZSCORE', KEYS[i], token) or now) - now
    put(KEYS[i], token, '', math.max(tonumber(ARGV[3]), stays))
  end
end
for i = n + 1, math.min(#KEYS, 2 * n) do
  if greater[i] then
    redis.call('SET', KEYS[i], ARGV[4], 'PX', ARGV[5])
  else
    redis.call('PEXPIRE', KEYS[i], ARGV[5])
  end
end
return {1}
