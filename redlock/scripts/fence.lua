-- The second chance for a fencing token (R17): store it if the caller owns every name and it is
-- greater than what is there (R18: equal is not greater).
--
-- KEYS  n lock keys, then their n fence keys
-- ARGV  n, token, proposed fence (decimal), life of a fence key in ms
--
-- returns {1, fence}    stored
--         {0, fence}    owner, but the fence that is there is not smaller
--         {-1, fence}   the caller does not own every name here
-- A lock key of another type is the error WRONGTYPE.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 20 characters of the value.
-- 2^53 - 1 is none: what is greater is not exact in Lua, and order would be lost silently.

local n, token, proposal = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local fence, owner, shape = 0, true, '%.0f'
for i = 1, n do
  local found = redis.pcall('GET', KEYS[i])
  if type(found) == 'table' then  -- a set of readers (R33), or of another type
    local score = redis.pcall('ZSCORE', KEYS[i], token)
    if type(score) == 'table' or redis.call('PTTL', KEYS[i]) == -1 then
      return found
    end
    local time = redis.call('TIME')
    found = score and tonumber(score) > time[1] * 1000 + math.floor(time[2] / 1000) and token
  end
  owner = owner and found == token
  local stored = redis.pcall('GET', KEYS[n + i])
  if stored then
    if type(stored) ~= 'string' or not string.match(stored, '^%d+$') or tonumber(stored) >= 9007199254740991 then
      if type(stored) == 'string' then
        stored = string.gsub(string.sub(stored, 1, 20), '[^ -~]', '?')
      elseif string.find(stored.err, 'WRONGTYPE', 1, true) then
        stored = 'a value of another type'
      else
        return stored
      end
      return redis.error_reply('BADFENCE ' .. KEYS[n + i] .. ' does not hold a fencing token but ' .. stored)
    end
    fence = math.max(fence, tonumber(stored))
    shape = #stored == 17 and '%017.0f' or shape  -- there may be tickets (R42)
  end
end
if not owner then
  return {-1, string.format('%.0f', fence)}
end
if proposal <= fence then
  return {0, string.format('%.0f', fence)}
end
for i = 1, n do
  redis.call('SET', KEYS[n + i], string.format(shape, proposal), 'PX', ARGV[4])
end
return {1, ARGV[3]}
