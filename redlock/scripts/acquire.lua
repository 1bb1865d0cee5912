-- Take every name, or none of them, and propose a fencing token (R16, R18).
--
-- KEYS  n lock keys, then their n fence keys (no fence keys: fencing is off)
-- ARGV  n, token, ttl in ms, proposed fence (decimal), life of a fence key in ms
--
-- returns {1, fence}                   taken, and the proposal stored; "0" without fencing
--         {2, fence}                   taken, but the fence that is there is not smaller (R18)
--         {0, fence, holder, pttl}     somebody holds a name: its token and its remaining ms
--                                      (-1: a key without expiry); "shared:" and until the last of its
--                                      readers ends (R33); nothing was changed.
--                                      Of what is longer than any token of ours, the first 128 bytes.
--                                      "tickets:" if nobody does, and others may wait in order (R42): see tickets.lua
-- A lock key of another type is the error WRONGTYPE.  A sorted set with an expiry is one of readers: see readers.lua.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 20 characters of the value.
-- 2^53 - 1 is none: what is greater is not exact in Lua, and order would be lost silently.
-- A name that has the token already is taken once more: a client that got no answer asks again (R10).
-- What is none stays there, for the life of a fence key at most if the lock was free.

-- Nearly always it is one free name, with a smaller fence or with none: two commands do it all.  (Only from Redis 7 on
-- does a script see that SET can return the old value.)  Whatever else is there is put back, and left to what follows.
if ARGV[1] == '1' and (#KEYS == 1 or redis.REDIS_VERSION_NUM) and redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then
  if #KEYS == 1 then
    return {1, '0'}
  end
  local proposal = ARGV[4]
  local stored = redis.pcall('SET', KEYS[2], proposal, 'PX', ARGV[5], 'GET')
  if not stored or (#stored == #proposal and stored < proposal and string.match(stored, '^%d+$')) then
    return {1, proposal}
  end
  redis.call('DEL', KEYS[1])
  if type(stored) == 'string' then
    redis.call('SET', KEYS[2], stored, 'PX', ARGV[5])
  end
end

local n, token, ttl = tonumber(ARGV[1]), ARGV[2], ARGV[3]

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
for i = 1, n do
  local found, pttl = redis.pcall('GET', KEYS[i]), redis.call('PTTL', KEYS[i])
  if type(found) == 'table' then
    local last = redis.pcall('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')
    if last.err or pttl == -1 then
      return last.err and last or found -- another type, or the ACL lacks what it takes to look for readers
    end
    local time = redis.call('TIME')
    pttl = tonumber(last[2]) - time[1] * 1000 - math.floor(time[2] / 1000)
    found = pttl > 0 and 'shared:'
  end
  if found and found ~= token then
    if not holder or pttl == -1 or (remaining ~= -1 and pttl > remaining) then
      holder, remaining = found, pttl
    end
  end
end
if holder then
  return {0, string.format('%.0f', fence), string.sub(holder, 1, 128), remaining}
elseif lined and #ARGV[4] < 17 then
  return {0, string.format('%.0f', fence), 'tickets:', 1000}
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
