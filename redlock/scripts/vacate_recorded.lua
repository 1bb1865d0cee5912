-- What vacate.lua does, where an expiry is confirmed by more than one clock (R32, R35): the caller is not on record any
-- more.  A release has a fence, so it also takes away what is on record from before; a rollback has none.
--
-- KEYS  the lock key of the slot, or of several slots, if the caller may have been given any of them; then their grant keys
-- ARGV  token, channel of the group, ms for which nobody may have it, for `hold_at_least` (0: none), the fence of the lease
--       ("": a rollback, or not known), and the number of each slot
--
-- returns {1, listeners}, {0, holder}   as vacate.lua
-- A key of another type is the error WRONGTYPE; among several it is not the caller's.

-- (records.lua)

local token, keep, fence, n = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]) or -1, #KEYS / 2
local ours, listeners, other = 0, 0, nil
for i = 1, n do
  local found, left, wrong = holder(KEYS[i])
  if wrong and n == 1 then
    return wrong
  end
  local _, _, its_fence, whose = recorded(KEYS[n + i])
  if found == token or whose == token or (whose and tonumber(its_fence) <= fence) then
    redis.call('DEL', KEYS[n + i])
  end
  other = found
  if found == token then
    ours = 1
    if keep > 0 then
      -- never for longer than the key would have lived; one that has 0 ms left goes by itself
      if left < 0 or left > keep then
        left = keep
      end
      if left > 0 then
        redis.call('SET', KEYS[i], 'released:' .. token, 'PX', left)
      end
    else
      redis.call('DEL', KEYS[i])
      -- pcall: where PUBLISH is not permitted the key is gone all the same, and waiters poll (R24)
      for channel, message in pairs({[KEYS[i] .. ':released'] = token, [ARGV[2]] = ARGV[4 + i] .. ' ' .. token}) do
        local heard = redis.pcall('PUBLISH', channel, message)
        if type(heard) == 'number' then
          listeners = listeners + heard
        end
      end
    end
  end
end
if ours == 1 then
  return {1, listeners}
end
return {0, string.sub(other or '', 1, 128)}
