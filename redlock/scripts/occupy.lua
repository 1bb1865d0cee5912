-- Take one slot of a group, and propose a fencing token (R16, R18, R32): the first requested one that is free here.
-- A refusal also tells which slots are free here.
-- Where an expiry is confirmed by more than one clock (R35): a slot that is on record is not taken, but shown, if none of --[recorded]
-- those that are asked for is free without that. --[recorded]
--
-- KEYS  the lock keys of all slots in order, then the fence key of each slot that is asked for (left out: fencing is off)
--       then the grant keys of all slots --[recorded]
-- ARGV  how many slots there are, token, ttl in ms, proposed fence (decimal), life of a fence key in ms
--       life of a record in ms --[recorded]
--       then the slots that are asked for (the first one is 0), in the order of preference
--
-- returns {1, fence}                        the first one taken, and the proposal stored; "0" without fencing
--         {2, fence}                        taken, but the fence that is there is not smaller (R18)
--         {1 or 2, fence, slot}             the same, but another one was taken: this one
--         {0, fence, holder, pttl, slots}   each of them is held.  Of the first one the token and the remaining ms
--                                           (-1: a key without expiry), and the same time of each slot (-2: free);
--                                           "shared:" and until the last of its readers ends (R33); "other:" if
--                                           something is there that is no lock; nothing was changed.
--                                           Of a value longer than our tokens, the first 128 bytes
--         {3, fence, {which, stamp, ttl, token}, slots}   the first that is not held is on record: of those that are asked --[recorded]
--                                           for the one with that number; nothing was changed.  Of a slot that is on record --[recorded]
--                                           and are not held, `slots` has 0 ms --[recorded]
-- A lock key of another type is as good as taken.  It is the error WRONGTYPE if no slot has another one.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 8 characters of the value.

-- (fences.lua)
-- (holder.lua)
-- (record.lua) --[recorded]
-- (take.lua)

local slots, token, before = tonumber(ARGV[1]), ARGV[2], 5 --[not recorded]
local slots, token, before = tonumber(ARGV[1]), ARGV[2], 6 --[recorded]
if slots == 0 then
  return {1, '0'}
end
local asked, fencing, highest, flagged = #ARGV - before, #KEYS > slots, 0, nil
for i = 1, asked do
  local slot, at = tonumber(ARGV[before + i]) + 1, slots + i
  local shown, failure, fence = greatest(at, fencing and at or 0)
  local found, _, wrong = holder(KEYS[slot])
  if failure then
    return failure
  end
  highest = math.max(highest, fence)
  local free = not wrong and not found
  local again = not wrong and found == token -- a client that got no answer asks again (R10)
  local stamp, its_ttl, _, whose = recorded(KEYS[slots + asked + slot]) --[recorded]
  flagged = flagged or (free and stamp and {i, stamp, tonumber(its_ttl), whose}) --[recorded]
  free, again = free and not stamp, again and (stamp or '0') == '0' --[recorded]
  if free or again then
    local stores = fencing and tonumber(ARGV[4]) > fence
    take(KEYS[slot], fencing and KEYS[at], stores, KEYS[slots + asked + slot])
    local taken = stores and {1, ARGV[4]} or fencing and {2, shown} or {1, '0'}
    taken[3] = i > 1 and tonumber(ARGV[before + i]) or nil
    return taken
  end
end

local left, strange, first, who = {}, 0, tonumber(ARGV[before + 1]) + 1, nil
for i = 1, slots do
  local found, remaining, wrong = holder(KEYS[i])
  if wrong and not string.find(wrong.err, 'WRONGTYPE', 1, true) then
    return wrong
  elseif wrong then
    strange = strange + 1
  elseif not found and recorded(KEYS[slots + asked + i]) then --[recorded]
    remaining = 0 --[recorded]
  end
  left[i] = remaining
  if i == first then
    who = wrong or found or ''
  end
end
if strange == slots then
  return who
end
local shown = string.format('%.0f', highest)
who = type(who) == 'string' and string.sub(who, 1, 128) or 'other:'
return flagged and {3, shown, flagged, left} or {0, shown, who, left[first], left}
