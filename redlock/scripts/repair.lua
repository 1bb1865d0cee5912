-- Give the names back to a master that lost or never had them, after an extension was won (R14).
-- Does nothing where somebody else holds one; the mark of a writer that waits for readers holds none (R33).  The
-- greater of two fences stays: one that is greater than that of the lease was left by an attempt that failed, and must
-- not keep the names away.
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off)
-- ARGV  n, token, ttl in ms, fence of the lease (decimal), life of a fence key in ms
--
-- returns {1}    every name is the caller's here now, and the fence keys live on (R20)
--         {0}    nothing was changed
-- A key of another type is an error (WRONGTYPE), and nothing is changed.  What is no fencing token stays where it is.

local n, token, fence = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[4])

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
end
local greater = {}
for i = n + 1, #KEYS do
  local stored = redis.call('GET', KEYS[i]) or '0'
  greater[i] = string.match(stored, '^%d+$') and fence > tonumber(stored)
end
for i = 1, n do
  redis.call('SET', KEYS[i], token, 'PX', ARGV[3])
end
for i = n + 1, #KEYS do
  if greater[i] then
    redis.call('SET', KEYS[i], ARGV[4], 'PX', ARGV[5])
  else
    redis.call('PEXPIRE', KEYS[i], ARGV[5])
  end
end
return {1}
