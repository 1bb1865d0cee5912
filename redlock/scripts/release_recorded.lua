-- What release.lua does, where an expiry is confirmed by more than one clock (R35): the caller is not on record any more.
-- A release has a fence, so it also takes away what is on record from before: that is over (P2).  A rollback has none.
--
-- KEYS  n lock keys, then their n grant keys
-- ARGV  token, the fence of the lease ("": a rollback, or not known), and for `hold_at_least` the ms for which nobody may
--       have the names
--
-- returns {1, listeners}, {0, holder}, {-1}   as release.lua
-- A key of another type is an error (WRONGTYPE), but the others are released.

-- Nearly always it is one name, and the caller's: then so is the record.
if #KEYS == 2 and not ARGV[3] and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1], KEYS[2])
  -- pcall: where PUBLISH is not permitted the key is gone all the same, and waiters poll (R24)
  local heard = redis.pcall('PUBLISH', KEYS[1] .. ':released', ARGV[1])
  return {1, type(heard) == 'number' and heard or 0}
end

-- (records.lua)

local token, fence, n = ARGV[1], tonumber(ARGV[2]) or -1, #KEYS / 2
local ours, other, listeners, failure, reader = true, '', 0, nil, false
for i = 1, n do
  local found, _, wrong = holder(KEYS[i])
  local _, _, its_fence, whose = recorded(KEYS[n + i])
  if found == token or whose == token or (whose and tonumber(its_fence) <= fence) then
    redis.call('DEL', KEYS[n + i])
  end
  if found == token then
    local left = ARGV[3] and redis.call('PTTL', KEYS[i])
    if not left then
      redis.call('DEL', KEYS[i])
      local heard = redis.pcall('PUBLISH', KEYS[i] .. ':released', token)
      if type(heard) == 'number' then
        listeners = listeners + heard
      end
    else
      -- never for longer than the key would have lived; one that has 0 ms left goes by itself
      local keep = tonumber(ARGV[3])
      if left < 0 or left > keep then
        left = keep
      end
      if left > 0 then
        redis.call('SET', KEYS[i], 'released:' .. token, 'PX', left)
      end
    end
  else
    ours, failure, other = false, wrong or failure, found or other
    reader = reader or type(redis.pcall('ZSCORE', KEYS[i], token)) == 'string'
  end
end
if failure then
  return failure
elseif ours then
  return {1, listeners}
elseif reader then
  return {-1}
end
return {0, string.sub(other, 1, 128)}
