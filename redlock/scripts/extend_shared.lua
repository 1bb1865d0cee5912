-- What extend.lua does for a writer, for a reader: set the end of every name that the caller still holds, if it holds
-- them all (R12, R33).  It brings no reader back.
-- A full master does it as well: it refuses only what a script writes first, and that is a deletion here.
-- What the caller has for itself becomes its place among readers: so a downgrade is an extension, and one that did not
-- come here is made up for by the next.
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off); and where an expiry is confirmed by more than one
--       clock (R35) their n grant keys: the caller is not on record any more
-- ARGV  n, token, ttl in ms, life of a fence key in ms, and where the caller has to be a reader already: anything
--
-- returns {1}            extended, and the fence keys live on (R20)
--         {0, holder}    not all ours: the token that has one for itself, "" if none has ("''": somebody does, with an empty one)
--                        (of what is longer than any token of ours, the first 128 bytes)
--         {-2}           it has to be a reader, and has one for itself; nothing was changed

local n, token, ttl = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local ours, other = true, ''
for i = 1, n do
  local found, failure = writer(KEYS[i])
  if failure then
    return failure
  end
  if found == token and ARGV[5] then
    return {-2}
  end
  if found ~= token and (found or not redis.call('ZSCORE', KEYS[i], token)) then
    ours = false
    other = found == '' and "''" or found or other
  end
end
if not ours then
  return {0, string.sub(other, 1, 128)}
end
for i = 1, n do
  if writer(KEYS[i]) then
    share(KEYS[i], token, ttl)
    -- pcall: as in release.lua; readers that wait for the writer may come in now
    redis.pcall('PUBLISH', KEYS[i] .. ':released', token)
  else
    put(KEYS[i], token, '', ttl)
  end
end
for i = n + 1, math.min(#KEYS, 2 * n) do
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
forget(2 * n + 1, token)
return {1}
