-- Take one slot of a group, and propose a fencing token (R16, R18, R32).  A refusal also tells which slots are free here.
--
-- KEYS  the lock key of the slot, its fence key (left out: fencing is off), then the lock keys of all slots in order
-- ARGV  how many keys of its own the slot has (2; 1: fencing is off), token, ttl in ms, proposed fence (decimal),
--       life of a fence key in ms
--
-- returns {1, fence}                        taken, and the proposal stored; "0" without fencing
--         {2, fence}                        taken, but the fence that is there is not smaller (R18)
--         {0, fence, holder, pttl, slots}   somebody holds this slot: its token and its remaining ms (-1: a key without
--                                           expiry), and the same time of each slot (-2: free); nothing was changed.
--                                           Of what is longer than any token of ours, the first 128 bytes
-- A lock key of another type is the error WRONGTYPE, unless it is that of another slot: that one is taken.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 20 characters of the value.
-- 2^53 - 1 is none: what is greater is not exact in Lua, and order would be lost silently.

local own, fence = tonumber(ARGV[1]), 0
if own == 0 then
  return {1, '0'}
end

if own == 2 then
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
    fence = tonumber(stored)
  end
end

local holder = redis.call('GET', KEYS[1])
if holder then
  local slots = {}
  for i = own + 1, #KEYS do
    slots[i - own] = redis.call('PTTL', KEYS[i])
  end
  return {0, string.format('%.0f', fence), string.sub(holder, 1, 128), redis.call('PTTL', KEYS[1]), slots}
end

redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if own == 1 then
  return {1, '0'}
end
if tonumber(ARGV[4]) > fence then
  redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
  return {1, ARGV[4]}
end
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return {2, string.format('%.0f', fence)}
