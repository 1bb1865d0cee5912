-- Set the TTL of every name that the caller still holds, if it holds them all (R12).
-- It never creates a key: an extension brings nothing back.
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off)
-- ARGV  n, token, ttl in ms, life of a fence key in ms
--
-- returns {1}            extended, and the fence keys live on (R20)
--         {0, holder}    not all ours: the token of somebody else who holds one, "" if nobody does ("''": somebody does, with an empty one)
--                        (of what is longer than any token of ours, the first 128 bytes),
--                        "shared:" if readers do (R33); a writer that waits for readers has left a mark, and holds none
--         {-1}           the caller is one of its readers (R33)
-- A key of another type is the error WRONGTYPE.

local n, token = tonumber(ARGV[1]), ARGV[2]

local ours, other = true, ''
for i = 1, n do
  local found = redis.pcall('GET', KEYS[i])
  if found ~= token then
    if type(found) == 'table' then
      local reads = redis.pcall('ZSCORE', KEYS[i], token)
      if type(reads) == 'table' or redis.call('PTTL', KEYS[i]) == -1 then
        return found
      elseif reads then
        return {-1}
      end
      found = tonumber(redis.call('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')[2]) > 0 and 'shared:'
    end
    ours = false
    other = found == '' and "''" or found or other
  end
end
if not ours then
  return {0, string.sub(other, 1, 128)}
end
for i = 1, n do
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
for i = n + 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
return {1}
