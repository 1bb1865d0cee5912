-- Take one slot of a group, and propose a fencing token (R16, R18, R32): the first that is free here of those asked for.
-- A refusal also tells which slots are free here.
--
-- KEYS  the lock keys of all slots in order, then the fence key of each slot that is asked for (left out: fencing is off)
-- ARGV  how many slots there are, token, ttl in ms, proposed fence (decimal), life of a fence key in ms, then the slots
--       that are asked for (the first one is 0), in the order of preference
--
-- returns {1, fence}                        the first one taken, and the proposal stored; "0" without fencing
--         {2, fence}                        taken, but the fence that is there is not smaller (R18)
--         {1 or 2, fence, slot}             the same, but another one was taken: this one
--         {0, fence, holder, pttl, slots}   somebody holds each of them.  Of the first one the token and the remaining ms
--                                           (-1: a key without expiry), and the same time of each slot (-2: free);
--                                           "shared:" and until the last of its readers ends (R33); "other:" if
--                                           something is there that is no lock; nothing was changed.
--                                           Of what is longer than any token of ours, the first 128 bytes
-- A lock key of another type is as good as taken.  It is the error WRONGTYPE if no slot has another one.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 20 characters of the value.
-- 2^53 - 1 is none: what is greater is not exact in Lua, and order would be lost silently.

local slots, greatest = tonumber(ARGV[1]), 0
if slots == 0 then
  return {1, '0'}
end
local fencing = #KEYS > slots

-- The ms for which somebody has `key` (-1: a key without expiry, -2: it is free), and who: a token, or "shared:".  An
-- error: something is there that is no lock.
local function look(key)
  local left = redis.call('PTTL', key)
  if left == -2 then
    return left, ''
  end
  local found = redis.pcall('GET', key)
  if type(found) == 'table' then
    local last = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
    if last.err or left == -1 then
      return left, last.err and last or found
    end
    local time = redis.call('TIME')
    left = tonumber(last[2]) - time[1] * 1000 - math.floor(time[2] / 1000)
    if left <= 0 then  -- only a writer waits
      return -2, ''
    end
    found = 'shared:'
  end
  return left, found or ''
end

for i = 6, #ARGV do
  local key, fence_key, fence = KEYS[ARGV[i] + 1], KEYS[slots + i - 5], 0
  if fencing then
    local stored = redis.pcall('GET', fence_key)
    if stored then
      if type(stored) ~= 'string' or not string.match(stored, '^%d+$') or tonumber(stored) >= 9007199254740991 then
        if type(stored) == 'string' then
          stored = string.gsub(string.sub(stored, 1, 20), '[^ -~]', '?')
        elseif string.find(stored.err, 'WRONGTYPE', 1, true) then
          stored = 'a value of another type'
        else
          return stored
        end
        return redis.error_reply('BADFENCE ' .. fence_key .. ' does not hold a fencing token but ' .. stored)
      end
      fence = tonumber(stored)
    end
  end
  greatest = math.max(greatest, fence)

  local left, who = look(key)
  if left == -2 or who == ARGV[2] then  -- its own: a client that got no answer asks again (R10)
    redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
    local taken = {1, '0'}
    if fencing and tonumber(ARGV[4]) > fence then
      redis.call('SET', fence_key, ARGV[4], 'PX', ARGV[5])
      taken = {1, ARGV[4]}
    elseif fencing then
      redis.call('PEXPIRE', fence_key, ARGV[5])
      taken = {2, string.format('%.0f', fence)}
    end
    if i > 6 then
      taken[3] = tonumber(ARGV[i])
    end
    return taken
  end
end

local left, strange, first, holder = {}, 0, ARGV[6] + 1, nil
for i = 1, slots do
  local found
  left[i], found = look(KEYS[i])
  if type(found) == 'table' then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then
      return found
    end
    strange = strange + 1
  end
  if i == first then
    holder = found
  end
end
if strange == slots then
  return holder
end
holder = type(holder) == 'string' and holder or 'other:'
return {0, string.format('%.0f', greatest), string.sub(holder, 1, 128), left[first], left}
