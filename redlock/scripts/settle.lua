-- The second round where an expiry is confirmed by more than one clock (R17, R35): take every name, or none of them, with
-- a fence greater than what is there.  A name can be had if its lock key is the caller's; or if nobody has it, and what
-- is on record is what the caller was shown.
-- Or leave a phantom there, if the caller cannot tell whether that is over: nobody's lease, for as long as it may last.
--
-- KEYS  n lock keys, then their n fence keys, then their n grant keys
-- ARGV  n, token, proposed fence (decimal), life of a fence key in ms, life of a record in ms, ttl in ms (as it was asked
--       for, not what a key has left here: this clock may be wrong), what to set the lock key to: the token, or
--       "expired:" and the token for a phantom; then for each name how many records were shown, and for each of those
--       "MARK TOKEN", or "-" for none
--
-- returns {1, fence}    taken or ours, stored and on record; or the phantom is there
--         {0, fence}    could be had, but the fence that is there is not smaller; nothing was changed
--         {-1, fence}   somebody has a name, or another record is there; nothing was changed
-- A lock key of another type is the error WRONGTYPE, a fence key that holds none the error BADFENCE.

-- (records.lua)

local n, token, proposal, ttl, value = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[6], ARGV[7]
local fence, failure, lined = greatest(n + 1, 2 * n)
if failure then
  return failure
end
local shown = string.format('%.0f', fence)

local ours, arg = {}, 8
for i = 1, n do
  local found, _, wrong = holder(KEYS[i])
  if wrong then
    return wrong
  end
  local mark, _, _, whose = recorded(KEYS[2 * n + i])
  local may, last = false, arg + tonumber(ARGV[arg])
  if found then
    may = found == token and (not mark or mark == '0')
  else
    local here = mark and mark .. ' ' .. whose or '-'
    for one = arg + 1, last do
      may = may or ARGV[one] == here
    end
  end
  if not may then
    return {-1, shown}
  end
  ours[i], arg = found, last + 1
end

local phantom = value ~= token
if proposal > fence then
  shown = ARGV[3]
elseif not phantom then
  return {0, shown}
end
for i = 1, n do
  if phantom or not ours[i] then
    redis.call('SET', KEYS[i], value, 'PX', ttl)
  end
  redis.call('SET', KEYS[n + i], string.format(lined and '%017.0f' or '%.0f', tonumber(shown)), 'PX', ARGV[4])
  redis.call('SET', KEYS[2 * n + i], '0 ' .. ttl .. ' ' .. shown .. ' ' .. value, 'PX', ARGV[5])
end
return {1, shown}
