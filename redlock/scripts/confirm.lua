-- The second round where an expiry is confirmed by more than one clock (R17, R35): take every name, or none of them, with
-- a fence greater than what is there.  A name can be had if its lock key is the caller's; or if it is free, and what
-- is on record is what the caller was shown.
-- Or leave a phantom there, if the caller cannot tell whether the lease has ended: a lease without a holder, for as
-- long as that may last.
-- A name can be read if the caller reads it; or if no writer holds it, and what is on record is what the caller was shown: --[shared]
-- that goes.  A phantom takes the place of the caller, where no other client reads (R33). --[shared]
--
-- KEYS  n lock keys, then their n fence keys, then their n grant keys
-- ARGV  n, token, proposed fence (decimal), life of a fence key in ms, life of a record in ms, ttl in ms (as it was asked
--       for, not what a key has left here: this clock may be wrong), what to set the lock key to: the token, or
--       "expired:" and the token for a phantom; then for each name how many records were shown, and for each of those
--       "MARK TOKEN", or "-" for none
--
-- returns {1, fence}    taken or ours, stored and on record; or the phantom is there
--         {0, fence}    could be had, but the fence that is there is not smaller; nothing was changed
--         {-1, fence}   a name is taken, or another record is there; nothing was changed
-- A lock key of another type is the error WRONGTYPE, a fence key that holds none the error BADFENCE.

-- (fences.lua)
-- (holder.lua) --[not shared]
-- (readers.lua) --[shared]
-- (record.lua)

local n, token, proposal, ttl, value = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[6], ARGV[7]
local shown, failure, fence, lined = greatest(n + 1, 2 * n)
local ours, arg, phantom = {}, 8, value ~= token
for i = 1, failure and 0 or n do
  local found, _, wrong = holder(KEYS[i]) --[not shared]
  local found, wrong = writer(KEYS[i]) --[shared]
  local reads = not found and not wrong and redis.call('ZSCORE', KEYS[i], token) --[shared]
  local others = not found and not wrong and redis.call('ZCOUNT', KEYS[i], '0', '+inf') - (reads and 1 or 0) --[shared]
  local stamp, _, _, whose = recorded(KEYS[2 * n + i])
  local here, last = stamp and stamp .. ' ' .. whose or '-', arg + tonumber(ARGV[arg])
  local may = found == token and (stamp or '0') == '0' --[not shared]
  local may = reads and not stamp --[shared]
  for one = arg + 1, last do
    may = may or (not found and ARGV[one] == here)
  end
  may = may and not (phantom and others > 0) --[shared]
  if wrong or not may then
    return wrong or {-1, shown}
  end
  ours[i], arg = found, last + 1 --[not shared]
  ours[i], arg = reads, last + 1 --[shared]
end
if failure or (proposal <= fence and not phantom) then
  return failure or {0, shown}
elseif proposal > fence then
  shown = ARGV[3]
end
for i = 1, n do
  local record = '0 ' .. ttl .. ' ' .. shown .. ' ' .. value
  if phantom or not ours[i] then --[not shared]
  if phantom then --[shared]
    redis.call('SET', KEYS[i], value, 'PX', ttl)
  elseif not ours[i] then --[shared]
    share(KEYS[i], token, tonumber(ttl)) --[shared]
  end
  redis.call('SET', KEYS[n + i], string.format(lined and '%017.0f' or '%.0f', tonumber(shown)), 'PX', ARGV[4])
  redis.call('SET', KEYS[2 * n + i], record, 'PX', ARGV[5])
  if not phantom then -- readers are not on record --[shared]
    redis.call('DEL', KEYS[2 * n + i]) --[shared]
  end --[shared]
end
return {1, shown}
