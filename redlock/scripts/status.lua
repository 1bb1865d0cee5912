-- Who holds a name, for how long, and its fence.  Changes nothing.
--
-- KEYS  lock key, fence key
-- ARGV  how many readers to name; with a second argument the listeners are counted as well (R40)
--
-- returns {holder, pttl, fence}    "" and -2 if nobody holds it; pttl -1: a key without expiry;
--                                  fence "0": none known.
--                                  Behind the fence how many connections listen, if that was asked; -1: not permitted
--         {"shared:", pttl, fence, token...}    it has readers (R33): until the last of them ends, and who they are
--                                  Of what is longer than any token of ours, the first 128 bytes
-- A lock key of another type is the error WRONGTYPE.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 20 characters of the value.
-- 2^53 - 1 is none: what is greater is not exact in Lua, and order would be lost silently.

local holder, pttl, readers = redis.pcall('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), {}
if type(holder) == 'table' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  readers = redis.pcall('ZRANGE', KEYS[1], string.format('(%.0f', now), '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1])
  if readers.err or pttl == -1 then
    return readers.err and readers or holder
  end
  holder, pttl = 'shared:', tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]) - now
  if #readers == 0 then
    holder, pttl = '', -2
  end
end
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
if ARGV[2] then
  local listens = redis.pcall('PUBSUB', 'NUMSUB', KEYS[1] .. ':released')
  table.insert(readers, 1, tonumber(listens[2]) or -1)
end
return {string.sub(holder or '', 1, 128), pttl, stored or '0', unpack(readers)}
