-- What occupy.lua does, where an expiry is confirmed by more than one clock (R32, R35): a slot that is on record is not
-- taken, but shown, if none of those that are asked for is free without that.
--
-- KEYS  the lock keys of all slots in order, then the fence key of each slot that is asked for, then the grant keys of all
--       slots
-- ARGV  how many slots there are, token, ttl in ms, proposed fence (decimal), life of a fence key in ms, life of a record in
--       ms, then the slots that are asked for (the first one is 0), in the order of preference
--
-- returns {1 or 2, fence}, {1 or 2, fence, slot}, {0, fence, holder, pttl, slots}   as occupy.lua
--         {3, fence, {which, mark, ttl, token}, slots}   the first that nobody holds is on record: of those that are asked
--                                                        for the one with that number; nothing was changed
-- Of a slot that is on record and that nobody holds, `slots` has 0 ms.  Errors as occupy.lua.

-- (records.lua)

local slots, token, ttl, asked = tonumber(ARGV[1]), ARGV[2], ARGV[3], #ARGV - 6
if slots == 0 then
  return {1, '0'}
end
local before = slots + math.max(asked, 0)  -- the grant keys

local highest, flagged = 0, nil
for i = 1, asked do
  local slot = tonumber(ARGV[6 + i]) + 1
  local fence, failure = greatest(slots + i, slots + i)
  if failure then
    return failure
  end
  highest = math.max(highest, fence)
  local found, _, wrong = holder(KEYS[slot])
  local mark, its_ttl, _, whose = recorded(KEYS[before + slot])
  if not wrong and ((not found and not mark) or (found == token and (not mark or mark == '0'))) then
    redis.call('SET', KEYS[slot], token, 'PX', ttl)
    local taken = {2, string.format('%.0f', fence)}
    if tonumber(ARGV[4]) > fence then
      redis.call('SET', KEYS[slots + i], ARGV[4], 'PX', ARGV[5])
      redis.call('SET', KEYS[before + slot], '0 ' .. ttl .. ' ' .. ARGV[4] .. ' ' .. token, 'PX', ARGV[6])
      taken = {1, ARGV[4]}
    else
      redis.call('PEXPIRE', KEYS[slots + i], ARGV[5])
    end
    if i > 1 then
      taken[3] = slot - 1
    end
    return taken
  elseif mark and not found and not wrong then
    flagged = flagged or {i, mark, tonumber(its_ttl), whose}
  end
end

local left, strange, first, who = {}, 0, tonumber(ARGV[7]) + 1, nil
for i = 1, slots do
  local found, remaining, wrong = holder(KEYS[i])
  if wrong then
    if not string.find(wrong.err, 'WRONGTYPE', 1, true) then
      return wrong
    end
    strange = strange + 1
  elseif not found then
    remaining = recorded(KEYS[before + i]) and 0 or -2
  end
  left[i] = remaining
  if i == first then
    who = wrong or found or ''
  end
end
if flagged then
  return {3, string.format('%.0f', highest), flagged, left}
elseif strange == slots then
  return who
end
return {0, string.format('%.0f', highest), type(who) == 'string' and string.sub(who, 1, 128) or 'other:', left[first], left}
