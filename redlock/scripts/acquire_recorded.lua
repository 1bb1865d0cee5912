-- What acquire.lua does, where an expiry is confirmed by more than one clock (R35): a name whose last holder is on record
-- here and has not released it is not taken, but shown.
--
-- KEYS  n lock keys, then their n fence keys, then their n grant keys
-- ARGV  n, token, ttl in ms, proposed fence (decimal), life of a fence key in ms, life of a record in ms
--
-- returns {1, fence}, {2, fence}, {0, fence, holder, pttl}   as acquire.lua.  With 1 the caller is on record
--         {3, fence, {which, mark, ttl, token}, ...}         nobody holds a name, but these are on record, each for the
--                                                            name with that number: nothing was changed.
--                                                            settle.lua can take it
-- Errors as acquire.lua.  A name that has the token already is taken once more, unless an extension was here.

-- Nearly always it is one free name, without a record, and with a smaller fence or none.  Whatever else is there is put
-- back, and left to what follows.
if ARGV[1] == '1' and redis.REDIS_VERSION_NUM and redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then
  local proposal = ARGV[4]
  if redis.call('SET', KEYS[3], '0 ' .. ARGV[3] .. ' ' .. proposal .. ' ' .. ARGV[2], 'NX', 'PX', ARGV[6]) then
    local stored = redis.pcall('SET', KEYS[2], proposal, 'PX', ARGV[5], 'GET')
    if not stored or (#stored == #proposal and stored < proposal and string.match(stored, '^%d+$')) then
      return {1, proposal}
    end
    redis.call('DEL', KEYS[3])
    if type(stored) == 'string' then
      redis.call('SET', KEYS[2], stored, 'PX', ARGV[5])
    end
  end
  redis.call('DEL', KEYS[1])
end

-- (records.lua)

local n, token, ttl = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local fence, failure, lined = greatest(n + 1, 2 * n)
if failure then
  return failure
end
local shown = string.format('%.0f', fence)

local other, remaining
local flagged = {3, shown}
for i = 1, n do
  local found, left, wrong = holder(KEYS[i])
  if wrong then
    return wrong
  end
  local mark, its_ttl, _, whose = recorded(KEYS[2 * n + i])
  if found and (found ~= token or (mark and mark ~= '0')) then
    if not other or left == -1 or (remaining ~= -1 and left > remaining) then
      other, remaining = found, left
    end
  elseif mark and not found then
    flagged[#flagged + 1] = {i, mark, tonumber(its_ttl), whose}
  end
end
if other then
  return {0, shown, string.sub(other, 1, 128), remaining}
elseif lined and #ARGV[4] < 17 then
  return {0, shown, 'tickets:', 1000}
end
if #flagged > 2 then
  return flagged
end

local stores = tonumber(ARGV[4]) > fence
for i = 1, n do
  redis.call('SET', KEYS[i], token, 'PX', ttl)
  if stores then
    redis.call('SET', KEYS[n + i], ARGV[4], 'PX', ARGV[5])
    redis.call('SET', KEYS[2 * n + i], '0 ' .. ttl .. ' ' .. ARGV[4] .. ' ' .. token, 'PX', ARGV[6])
  else
    redis.call('PEXPIRE', KEYS[n + i], ARGV[5])
  end
end
if stores then
  return {1, ARGV[4]}
end
return {2, shown}
