-- What settle.lua does for a writer, for a reader: the second round where an expiry is confirmed by more than one clock (R17,
-- R33, R35).  A name can be had if the caller reads it; or if no writer holds it, and what is on record is what the caller
-- was shown: that goes.  A phantom takes the place of the caller, where nobody else reads.
--
-- KEYS  n lock keys, then their n fence keys, then their n grant keys
-- ARGV  as settle.lua
--
-- returns {1, fence}, {0, fence}, {-1, fence}   as settle.lua
-- A lock key of another type is the error WRONGTYPE, a fence key that holds none the error BADFENCE.

-- (readers.lua)

-- (records.lua)

local n, token, proposal, ttl, value = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[6], ARGV[7]
local fence, failure, lined = greatest(n + 1, 2 * n)
if failure then
  return failure
end
local shown, phantom = string.format('%.0f', fence), value ~= token

local ours, arg = {}, 8
for i = 1, n do
  local found, wrong = writer(KEYS[i])
  if wrong then
    return wrong
  end
  local mark, _, _, whose = recorded(KEYS[2 * n + i])
  local reads = not found and redis.call('ZSCORE', KEYS[i], token)
  local may, last = reads and not mark, arg + tonumber(ARGV[arg])
  local here = mark and mark .. ' ' .. whose or '-'
  for one = arg + 1, last do
    may = may or (not found and ARGV[one] == here)
  end
  local others = not found and redis.call('ZCOUNT', KEYS[i], '0', '+inf') - (reads and 1 or 0)
  if not may or (phantom and others > 0) then
    return {-1, shown}
  end
  ours[i], arg = reads, last + 1
end

if proposal > fence then
  shown = ARGV[3]
elseif not phantom then
  return {0, shown}
end
for i = 1, n do
  if phantom then
    redis.call('SET', KEYS[i], value, 'PX', ttl)
    redis.call('SET', KEYS[2 * n + i], '0 ' .. ttl .. ' ' .. shown .. ' ' .. value, 'PX', ARGV[5])
  else
    if not ours[i] then
      put(KEYS[i], token, '', tonumber(ttl))
    end
    redis.call('DEL', KEYS[2 * n + i])
  end
  redis.call('SET', KEYS[n + i], string.format(lined and '%017.0f' or '%.0f', tonumber(shown)), 'PX', ARGV[4])
end
return {1, shown}
