-- The first extension of a lease that was handed over, by a client that keeps no records (R35): what extend.lua does, but
-- not where the lease is on record.  Who has that has to extend it on record, or its masters say that it is over.
--
-- KEYS  n lock keys, then their n grant keys, then the n fence keys (none: fencing is off)
-- ARGV  n, token, ttl in ms, life of a fence key in ms
--
-- returns {1}, {0, holder}, {-1}   as extend.lua
--         {-3}                     the lease is on record; nothing was changed
-- A key of another type is the error WRONGTYPE.

-- (records.lua)

local n, token = tonumber(ARGV[1]), ARGV[2]

local ours, other = true, ''
for i = 1, n do
  local found, _, wrong = holder(KEYS[i])
  local _, _, _, whose = recorded(KEYS[n + i])
  if whose == token then
    return {-3}
  elseif found ~= token then
    if wrong then
      return wrong
    elseif type(redis.pcall('ZSCORE', KEYS[i], token)) == 'string' then
      return {-1}
    end
    ours = false
    other = found or other
  end
end
if not ours then
  return {0, string.sub(other, 1, 128)}
end
for i = 1, n do
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
for i = 2 * n + 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
return {1}
