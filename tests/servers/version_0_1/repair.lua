-- Give the names back to a master that lost or never had them, after an extension was won (R14).
-- Does nothing where somebody else holds one, or where a newer grant left its fence.
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off)
-- ARGV  n, token, ttl in ms, fence of the lease (decimal), life of a fence key in ms
--
-- returns {1}    every name is the caller's here now
--         {0}    nothing was changed

local n, token = tonumber(ARGV[1]), ARGV[2]

for i = 1, n do
  local found = redis.call('GET', KEYS[i])
  if found and found ~= token then
    return {0}
  end
end
for i = n + 1, #KEYS do
  local stored = redis.call('GET', KEYS[i])
  if stored and (not tonumber(stored) or tonumber(stored) > tonumber(ARGV[4])) then
    return {0}
  end
end
for i = 1, n do
  redis.call('SET', KEYS[i], token, 'PX', ARGV[3])
end
for i = n + 1, #KEYS do
  redis.call('SET', KEYS[i], ARGV[4], 'PX', ARGV[5])
end
return {1}
