-- What release.lua does for a slot of a group (R32): delete its key if the caller holds it.  That is announced to those
-- who wait for this slot, and to those who wait for any slot of the group (R24).
-- Or keep it from everybody for a while: then its value says who released it, and there is nothing to tell yet (R28).
-- A key of somebody else is left alone (P8).
--
-- KEYS  the lock key of the slot; of several slots, if the caller may have been given any of them
-- ARGV  token, channel of the group, ms for which nobody may have it, for `hold_at_least` (0: none), and the number of
--       each slot
--
-- returns {1, listeners}    it was the caller's; how many connections heard of it
--         {0, holder}       it was not: the token of somebody else who holds it, "" if nobody does
--                           (of what is longer than any token of ours, the first 128 bytes);
--                           "released:" and a token if nobody may have it yet; "shared:" if readers have it (R33).
--                           Of several slots: the last one
-- A key of another type is the error WRONGTYPE; among several it is not the caller's.
-- The message to the group is the number of the slot, a space, and the token.

local token, keep, ours, listeners, found = ARGV[1], tonumber(ARGV[3]), 0, 0, false
for i, key in ipairs(KEYS) do
  found = redis.pcall('GET', key)
  if type(found) == 'table' then
    local last = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
    if not last.err and redis.call('PTTL', key) ~= -1 then
      found = tonumber(last[2]) > 0 and 'shared:'  -- or only a writer waits
    elseif #KEYS == 1 then
      return found
    end
  end
  if found == token then
    ours = 1
    if keep > 0 then
      -- never for longer than the key would have lived; one that has 0 ms left goes by itself
      local left = redis.call('PTTL', key)
      if left < 0 or left > keep then
        left = keep
      end
      if left > 0 then
        redis.call('SET', key, 'released:' .. token, 'PX', left)
      end
    else
      redis.call('DEL', key)
      -- pcall: where PUBLISH is not permitted the key is gone all the same, and waiters poll (R24)
      for channel, message in pairs({[key .. ':released'] = token, [ARGV[2]] = ARGV[3 + i] .. ' ' .. token}) do
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
return {0, type(found) == 'string' and string.sub(found, 1, 128) or ''}
