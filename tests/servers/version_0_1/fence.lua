-- The second chance for a fencing token (R17): store it if the caller owns every name and it is
-- greater than what is there (R18: equal is not greater).
--
-- KEYS  n lock keys, then their n fence keys
-- ARGV  n, token, proposed fence (decimal), life of a fence key in ms
--
-- returns {1, fence}    stored
--         {0, fence}    owner, but the fence that is there is not smaller
--         {-1, fence}   the caller does not own every name here

local n, token, proposal = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local fence, owner = 0, true
for i = 1, n do
  owner = owner and redis.call('GET', KEYS[i]) == token
  local stored = redis.call('GET', KEYS[n + i])
  if stored then
    if not string.match(stored, '^%d+$') or tonumber(stored) >= 9007199254740992 then
      return redis.error_reply('BADFENCE ' .. KEYS[n + i] .. ' does not hold a fencing token')
    end
    fence = math.max(fence, tonumber(stored))
  end
end
if not owner then
  return {-1, string.format('%.0f', fence)}
end
if proposal <= fence then
  return {0, string.format('%.0f', fence)}
end
for i = 1, n do
  redis.call('SET', KEYS[n + i], ARGV[3], 'PX', ARGV[4])
end
return {1, ARGV[3]}
