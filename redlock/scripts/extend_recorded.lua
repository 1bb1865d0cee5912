-- What extend.lua does, where an expiry is confirmed by more than one clock (R35): the extension leaves its mark on record.
--
-- KEYS  n lock keys, then their n fence keys, then their n grant keys
-- ARGV  n, token, ttl in ms, life of a fence key in ms, life of a record in ms, mark, fence of the lease ("": not known)
--
-- returns {1}, {0, holder}, {-1}   as extend.lua.  With 1 the extension is on record
-- The error STALE: a later extension was here, or somebody else is on record; nothing was changed.
-- A key of another type is the error WRONGTYPE.

-- (records.lua)

local n, token = tonumber(ARGV[1]), ARGV[2]

local ours, other, records = true, '', {}
for i = 1, n do
  local found, _, wrong = holder(KEYS[i])
  if found ~= token then
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
  records[i] = extension(KEYS[2 * n + i], token, ARGV[3], ARGV[6], ARGV[7])
  if not records[i] then
    return redis.error_reply('STALE a later extension of this lease was here, or another one is on record')
  end
end
for i = 1, n do
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
  redis.call('PEXPIRE', KEYS[n + i], ARGV[4])
  redis.call('SET', KEYS[2 * n + i], records[i], 'PX', ARGV[5])
end
return {1}
