-- What acquire.lua does for a writer, for a reader: take every name for reading, or none of them, and propose a
-- fencing token (R16, R18, R33).
--
-- KEYS  n lock keys, then their n fence keys (no fence keys: fencing is off)
-- ARGV  n, token, ttl in ms, proposed fence (decimal), life of a fence key in ms, most readers of a name
--
-- returns {1, fence}                   taken, and the proposal stored; "0" without fencing
--         {2, fence}                   taken, but the fence that is there is not smaller (R18)
--         {0, fence, holder, pttl}     a name cannot be had: the token that has it for itself and its remaining ms
--                                      (-1: a key without expiry); or "waiting:" and how long the mark of a writer
--                                      lasts; or "shared:full" and when the first of its readers ends; or "tickets:" if
--                                      others may wait in order (R42): see tickets.lua.
--                                      Nothing was changed.  Of a long token, the first 128 bytes
-- A lock key of another type is the error WRONGTYPE.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 20 characters of the value.

local n, token, ttl, most = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])

local fence, lined = 0, false
for i = n + 1, #KEYS do
  local stored = redis.pcall('GET', KEYS[i])
  if stored then
    if type(stored) ~= 'string' or not string.match(stored, '^%d+$') or tonumber(stored) >= 9007199254740991 then
      if type(stored) == 'string' then
        stored = string.gsub(string.sub(stored, 1, 20), '[^ -~]', '?')
      elseif string.find(stored.err, 'WRONGTYPE', 1, true) then
        stored = 'a value of another type'
      else
        return stored
      end
      return redis.error_reply('BADFENCE ' .. KEYS[i] .. ' does not hold a fencing token but ' .. stored)
    end
    fence, lined = math.max(fence, tonumber(stored)), lined or #stored == 17
  end
end

local holder, remaining
local function refused(by, left)
  if not holder or left == -1 or (remaining ~= -1 and left > remaining) then
    holder, remaining = by, left
  end
end
for i = 1, n do
  local found, failure = writer(KEYS[i])
  if failure then
    return failure
  elseif found then
    refused(found, redis.call('PTTL', KEYS[i]))
  else
    local first = tonumber(redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2] or now)
    if first < 0 then
      refused('waiting:', -first - now)
    elseif redis.call('ZCOUNT', KEYS[i], '-inf', '+inf') >= most then
      refused('shared:full', first - now)
    end
  end
end
if holder then
  return {0, string.format('%.0f', fence), string.sub(holder, 1, 128), remaining}
elseif lined then
  return {0, string.format('%.0f', fence), 'tickets:', 1000}
end

for i = 1, n do
  put(KEYS[i], token, '', ttl)
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
