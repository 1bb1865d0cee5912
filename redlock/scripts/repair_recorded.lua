-- What repair.lua does, where an expiry is confirmed by more than one clock (R14, R35).  It does nothing where somebody
-- else is on record with a greater fence; a smaller one is over, and goes.  It puts nothing on record: the next extension
-- does, and until then this master is no evidence of anything.  A key that is the caller's lives as long as it did.
--
-- KEYS  n lock keys, then their n fence keys, then their n grant keys
-- ARGV  n, token, ttl in ms, fence of the lease (decimal), life of a fence key in ms
--
-- returns {1}    every name is the caller's here now, and the fence keys live on (R20)
--         {0}    nothing was changed
-- A key of another type is an error (WRONGTYPE), and nothing is changed.  What is no fencing token stays where it is.

-- (records.lua)

local n, token, fence = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[4])
local ours, over, greater = {}, {}, {}
for i = 1, n do
  local found, _, wrong = holder(KEYS[i])
  if wrong then
    return wrong
  end
  local _, _, its_fence, whose = recorded(KEYS[2 * n + i])
  if (found and found ~= token) or (whose and whose ~= token and tonumber(its_fence) > fence) then
    return {0}
  end
  ours[i], over[i] = found, whose and whose ~= token
  local stored = redis.call('GET', KEYS[n + i]) or '0'
  -- the zero in front stays: others may wait in order (R42)
  greater[i] = string.match(stored, '^%d+$') and fence > tonumber(stored) and (#stored == 17 and '%017.0f' or '%.0f')
end
for i = 1, n do
  if not ours[i] then
    redis.call('SET', KEYS[i], token, 'PX', ARGV[3])
  end
  if over[i] then
    redis.call('DEL', KEYS[2 * n + i])
  end
  if greater[i] then
    redis.call('SET', KEYS[n + i], string.format(greater[i], fence), 'PX', ARGV[5])
  else
    redis.call('PEXPIRE', KEYS[n + i], ARGV[5])
  end
end
return {1}
