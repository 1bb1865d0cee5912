-- Give the names back to a master that lost or never had them, after an extension was won (R14).
-- Does nothing where somebody else holds one; the mark of a writer that waits for readers holds none (R33).  The
-- greater of two fences stays: one that is greater than that of the lease was left by an attempt that failed, and must
-- not keep the names away.  A key that is the caller's and lives longer stays as well: whom the lease was handed over to
-- has extended it, and who had it before knows nothing of that (C11).
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off)
-- ARGV  n, token, ttl in ms, fence of the lease (decimal), life of a fence key in ms
--
-- returns {1}    every name is the caller's here now, and the fence keys live on (R20)
--         {0}    nothing was changed
-- A key of another type is an error (WRONGTYPE), and nothing is changed.  What is no fencing token stays where it is.

local n, token, fence, longer = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[4]), {}

for i = 1, n do
  local found = redis.pcall('GET', KEYS[i])
  if type(found) == 'table' then
    local last = redis.pcall('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')
    if last.err or tonumber(last[2]) > 0 or redis.call('PTTL', KEYS[i]) == -1 then
      return found
    end
  elseif found and found ~= token then
    return {0}
  end
  longer[i] = found == token and redis.call('PTTL', KEYS[i]) > tonumber(ARGV[3])
end
local greater = {}
for i = n + 1, #KEYS do
  local stored = redis.call('GET', KEYS[i]) or '0'
  -- the zero in front stays: others may wait in order (R42)
  greater[i] = string.match(stored, '^%d+$') and fence > tonumber(stored) and (#stored == 17 and '%017.0f' or '%.0f')
end
for i = 1, n do
  if not longer[i] then
    redis.call('SET', KEYS[i], token, 'PX', ARGV[3])
  end
end
for i = n + 1, #KEYS do
  if greater[i] then
    redis.call('SET', KEYS[i], string.format(greater[i], fence), 'PX', ARGV[5])
  else
    redis.call('PEXPIRE', KEYS[i], ARGV[5])
  end
end
return {1}
