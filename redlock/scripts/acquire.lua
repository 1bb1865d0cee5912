-- Take every name, or none of them, and propose a fencing token (R16, R18).
-- It takes them for reading: others may read as well (R33). --[shared]
-- The caller waits in line: it is granted nothing before the waiter with the lowest ticket (R42). --[fair]
-- Where an expiry is confirmed by more than one clock (R35): a name whose last holder is on record here and has not --[recorded]
-- released it is not taken, but shown. --[recorded]
--
-- KEYS  n lock keys, then their n fence keys (no fence keys: fencing is off) --[not recorded]
-- KEYS  n lock keys, then their n fence keys, then their n grant keys --[recorded]
--       then their n ticket keys --[fair]
-- ARGV  n, token, ttl in ms, proposed fence (decimal), life of a fence key in ms
--       most readers of a name --[shared]
--       life of a record in ms --[recorded, not shared]
--       The proposed fence has a zero in front (17 digits).  Last, the token of the waiter, which may have no ticket yet --[fair]
--
-- returns {1, fence}                   taken, and the proposal stored; "0" without fencing
--         {2, fence}                   taken, but the fence that is there is not smaller (R18)
--         {0, fence, holder, pttl}     a name cannot be had: the token that has it and its remaining ms (-1: a key without
--                                      expiry); nothing was changed.  Of a value longer than our tokens, the first
--                                      128 bytes.  "shared:" and until the last of its readers ends (R33);
--                                      "waiting:" and how long the mark of a writer lasts; "shared:full" and when the first --[shared]
--                                      of its readers ends; --[shared]
--                                      "ticket:" and the token of the waiter whose turn it is, and how long that lasts; --[fair]
--                                      "tickets:" if it is free, and others may wait in order (R42)
--         {3, fence, {which, stamp, ttl, token}, ...}   a name is free, but these are on record, each for the name with --[recorded]
--                                      that number: nothing was changed.  confirm.lua can take it --[recorded]
-- A lock key of another type is the error WRONGTYPE.  A sorted set with an expiry is one of readers.
-- A fence key that holds none, of another type as well, is the error BADFENCE: the key, and 8 characters of the value.
-- A name that has the token already is taken once more: a client that got no answer asks again (R10).
-- A value that is no fence stays there, if the lock was free for the life of a fence key at most.

-- (turn.lua) --[fair]
-- (grant.lua) --[not shared]

-- (fences.lua)
-- (holder.lua) --[not shared]
-- (readers.lua) --[shared]
-- (record.lua) --[recorded]

local n, token, last = tonumber(ARGV[1]), ARGV[2], #KEYS --[not recorded]
local n, token, last = tonumber(ARGV[1]), ARGV[2], 2 * ARGV[1] --[recorded]
local shown, failure, fence, lined = greatest(n + 1, last)
if failure then
  return failure
end
local other, remaining
local flagged = {3, shown} --[recorded]
for i = 1, n do
  local found, left, wrong = holder(KEYS[i]) --[not shared]
  local found, left, wrong = hindrance(KEYS[i], tonumber(ARGV[6])) --[shared]
  if wrong then
    return wrong
  end
  local again = found == token --[not shared]
  local again = false --[shared]
  local stamp, its_ttl, _, whose = recorded(KEYS[2 * n + i]) --[recorded]
  again = again and (stamp or '0') == '0' -- no extension was here --[recorded]
  if found and not again then
    if not other or left == -1 or (remaining ~= -1 and left > remaining) then
      other, remaining = found, left
    end
  elseif stamp and not found then --[recorded]
    flagged[#flagged + 1] = {i, stamp, tonumber(its_ttl), whose} --[recorded]
  end
end
if other then
  return {0, shown, string.sub(other, 1, 128), remaining}
elseif lined and #ARGV[4] < 17 then
  return {0, shown, 'tickets:', 1000}
elseif #flagged > 2 then --[recorded]
  return flagged --[recorded]
end

-- (take.lua)

local stores = #KEYS > n and tonumber(ARGV[4]) > fence
for i = 1, n do
  take(KEYS[i], KEYS[n + i], stores, KEYS[2 * n + i])
end
return stores and {1, ARGV[4]} or #KEYS > n and {2, shown} or {1, '0'}
