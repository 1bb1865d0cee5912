-- Who holds a name, for how long, and its fence.  Changes nothing.
--
-- KEYS  lock key, fence key
--
-- returns {holder, pttl, fence}    "" and -2 if nobody holds it; pttl -1: a key without expiry;
--                                  fence "0": none known.
--                                  Of what is longer than any token of ours, the first 128 bytes
-- A lock key of another type is the error WRONGTYPE.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 20 characters of the value.
-- 2^53 - 1 is none: what is greater is not exact in Lua, and order would be lost silently.

local holder = redis.call('GET', KEYS[1])
local stored = redis.pcall('GET', KEYS[2])
if stored then
  if type(stored) ~= 'string' or not string.match(stored, '^%d+$') or tonumber(stored) >= 9007199254740991 then
    if type(stored) == 'string' then
      stored = string.gsub(string.sub(stored, 1, 20), '[^ -~]', '?')
    elseif string.find(stored.err, 'WRONGTYPE', 1, true) then
      stored = 'a value of another type'
    else
      return stored
    end
    return redis.error_reply('BADFENCE ' .. KEYS[2] .. ' does not hold a fencing token but ' .. stored)
  end
  stored = string.format('%.0f', tonumber(stored))
end
return {string.sub(holder or '', 1, 128), redis.call('PTTL', KEYS[1]), stored or '0'}
