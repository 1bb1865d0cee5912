-- Set the TTL of every name that the caller still holds, if it holds them all (R12).
-- It never creates a key: an extension brings nothing back.
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off)
-- ARGV  n, token, ttl in ms, life of a fence key in ms
--
-- returns {1}            extended, and the fence keys live on (R20)
--         {0, holder}    not all ours: the token of somebody else who holds one, "" if nobody does

local n, token = tonumber(ARGV[1]), ARGV[2]

local ours, other = true, ''
for i = 1, n do
  local found = redis.call('GET', KEYS[i])
  if found ~= token then
    ours = false
    other = found or other
  end
end
if not ours then
  return {0, other}
end
for i = 1, n do
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
for i = n + 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
return {1}
