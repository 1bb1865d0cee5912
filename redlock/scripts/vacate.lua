-- What release.lua does for one slot of a group (R32): delete its key if the caller holds it.  That is announced to those
-- who wait for this slot, and to those who wait for any slot of the group (R24).
-- Or keep it from everybody for a while: then its value says who released it, and there is nothing to tell yet (R28).
-- A key of somebody else is left alone (P8).
--
-- KEYS  the lock key of the slot
-- ARGV  token, channel of the group, number of the slot, and for `hold_at_least` the ms for which nobody may have it
--
-- returns {1, listeners}    it was the caller's; how many connections heard of it
--         {0, holder}       it was not: the token of somebody else who holds it, "" if nobody does
--                           (of what is longer than any token of ours, the first 128 bytes);
--                           "released:" and a token if nobody may have it yet
-- A key of another type is the error WRONGTYPE.
-- The message to the group is the number of the slot, a space, and the token.

local token, key = ARGV[1], KEYS[1]
local found = redis.call('GET', key)
if found ~= token then
  return {0, string.sub(found or '', 1, 128)}
end
if ARGV[4] then
  -- never for longer than the key would have lived; one that has 0 ms left goes by itself
  local keep, left = tonumber(ARGV[4]), redis.call('PTTL', key)
  if left < 0 or left > keep then
    left = keep
  end
  if left > 0 then
    redis.call('SET', key, 'released:' .. token, 'PX', left)
  end
  return {1, 0}
end
redis.call('DEL', key)
-- pcall: where PUBLISH is not permitted the key is gone all the same, and waiters poll (R24)
local listeners = 0
for channel, message in pairs({[key .. ':released'] = token, [ARGV[2]] = ARGV[3] .. ' ' .. token}) do
  local heard = redis.pcall('PUBLISH', channel, message)
  if type(heard) == 'number' then
    listeners = listeners + heard
  end
end
return {1, listeners}
