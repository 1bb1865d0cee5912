-- Take every name, or none of them (section 4), and propose a fencing token (R16, R18).
--
-- KEYS  n lock keys, then their n fence keys (no fence keys: fencing is off)
-- ARGV  n, token, ttl in ms, proposed fence (decimal), life of a fence key in ms
--
-- returns {1, fence}                   taken, and the proposal stored; "0" without fencing
--         {2, fence}                   taken, but the fence that is there is not smaller (R18)
--         {0, fence, holder, pttl}     somebody holds a name: its token and its remaining ms
--                                      (-1: a key without expiry); nothing was changed
-- A key of another type is an error (WRONGTYPE), and so is a fence that is not a number.

local n, token, ttl = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local fence = 0
for i = n + 1, #KEYS do
  local stored = redis.call('GET', KEYS[i])
  if stored then
    -- beyond 2^53 a Lua number is no longer exact, and order would be lost silently
    if not string.match(stored, '^%d+$') or tonumber(stored) >= 9007199254740992 then
      return redis.error_reply('BADFENCE ' .. KEYS[i] .. ' does not hold a fencing token')
    end
    fence = math.max(fence, tonumber(stored))
  end
end

local holder, remaining
for i = 1, n do
  local found = redis.call('GET', KEYS[i])
  if found then
    local pttl = redis.call('PTTL', KEYS[i])
    if not holder or pttl == -1 or (remaining ~= -1 and pttl > remaining) then
      holder, remaining = found, pttl
    end
  end
end
if holder then
  return {0, string.format('%.0f', fence), holder, remaining}
end

for i = 1, n do
  redis.call('SET', KEYS[i], token, 'PX', ttl)
end
if #KEYS > n then
  local proposal = tonumber(ARGV[4])
  if proposal > fence then
    for i = n + 1, #KEYS do
      redis.call('SET', KEYS[i], ARGV[4], 'PX', ARGV[5])
    end
    return {1, ARGV[4]}
  end
  for i = n + 1, #KEYS do
    redis.call('PEXPIRE', KEYS[i], ARGV[5])
  end
  return {2, string.format('%.0f', fence)}
end
return {1, '0'}
