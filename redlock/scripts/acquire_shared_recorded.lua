-- What acquire_shared.lua does, where an expiry is confirmed by more than one clock (R33, R35): a name whose last writer is
-- on record here and has not released it is not taken, but shown.  Readers are not on record.
--
-- KEYS  n lock keys, then their n fence keys, then their n grant keys
-- ARGV  n, token, ttl in ms, proposed fence (decimal), life of a fence key in ms, most readers of a name
--
-- returns {1, fence}, {2, fence}, {0, fence, holder, pttl}   as acquire_shared.lua
--         {3, fence, {which, mark, ttl, token}, ...}         no writer holds a name, but these are on record, each for the
--                                                            name with that number: nothing was changed.
--                                                            settle_shared.lua can take it
-- Errors as acquire_shared.lua.

-- (readers.lua)

-- (records.lua)

local n, token, ttl, most = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
local fence, failure, lined = greatest(n + 1, 2 * n)
if failure then
  return failure
end
local shown = string.format('%.0f', fence)

local other, remaining
local function refused(by, left)
  if not other or left == -1 or (remaining ~= -1 and left > remaining) then
    other, remaining = by, left
  end
end
local flagged = {3, shown}
for i = 1, n do
  local found, wrong = writer(KEYS[i])
  if wrong then
    return wrong
  elseif found then
    refused(found, redis.call('PTTL', KEYS[i]))
  else
    local first = tonumber(redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2] or now)
    if first < 0 then
      refused('waiting:', -first - now)
    elseif redis.call('ZCOUNT', KEYS[i], '-inf', '+inf') >= most then
      refused('shared:full', first - now)
    end
    local mark, its_ttl, _, whose = recorded(KEYS[2 * n + i])
    if mark then
      flagged[#flagged + 1] = {i, mark, tonumber(its_ttl), whose}
    end
  end
end
if other then
  return {0, shown, string.sub(other, 1, 128), remaining}
elseif lined then
  return {0, shown, 'tickets:', 1000}
elseif #flagged > 2 then
  return flagged
end

local stores = tonumber(ARGV[4]) > fence
for i = 1, n do
  put(KEYS[i], token, '', ttl)
  if stores then
    redis.call('SET', KEYS[n + i], ARGV[4], 'PX', ARGV[5])
  else
    redis.call('PEXPIRE', KEYS[n + i], ARGV[5])
  end
end
return stores and {1, ARGV[4]} or {2, shown}
