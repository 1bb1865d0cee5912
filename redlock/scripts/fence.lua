-- The second chance for a fencing token (R17): store it if the caller owns every name and it is
-- greater than what is there (R18: equal is not greater).
--
-- KEYS  n lock keys, then their n fence keys
-- ARGV  n, token, proposed fence (decimal), life of a fence key in ms
--
-- returns {1, fence}    stored
--         {0, fence}    owner, but the fence that is there is not smaller
--         {-1, fence}   the caller does not own every name here
-- A lock key of another type is the error WRONGTYPE, a fence key that holds none the error BADFENCE.

-- (fences.lua)
-- (holder.lua)
-- (clock.lua)

local n, token, proposal = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local shown, failure, fence, lined = greatest(n + 1, 2 * n)
local owner = true
for i = 1, failure and 0 or n do
  if redis.pcall('GET', KEYS[i]) ~= token then
    local found, _, wrong = holder(KEYS[i])
    local ends = found == 'shared:' and tonumber(redis.pcall('ZSCORE', KEYS[i], token)) -- a reader's (R33)
    failure, owner = failure or wrong, owner and ends and ends > clock()
  end
end
if failure or not owner then
  return failure or {-1, shown}
elseif proposal <= fence then
  return {0, shown}
end
for i = n + 1, 2 * n do
  redis.call('SET', KEYS[i], string.format(lined and '%017.0f' or '%.0f', proposal), 'PX', ARGV[4])
end
return {1, ARGV[3]}
