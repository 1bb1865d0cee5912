-- What release.lua does for a slot of a group (R32): delete its key if the caller holds it.  That is announced to those
-- who wait for this slot, and to those who wait for any slot of the group (R24).
-- Or keep it from everybody for a while: then its value says who released it, and there is nothing to tell yet (R28).
-- Where an expiry is confirmed by more than one clock (R35), the caller is not on record any more.  A release has a fence, --[recorded]
-- so it also takes away what is on record from before; a rollback has none. --[recorded]
-- A key of another client is left alone (P8).
--
-- KEYS  the lock key of the slot; of several slots, if the caller may have been given any of them
--       then their grant keys --[recorded]
-- ARGV  token, channel of the group, ms for which no client may have it, for `hold_at_least` (0: none)
--       the fence of the lease ("": a rollback, or not known) --[recorded]
--       and the number of each slot
--
-- returns {1, listeners}    it was the caller's; how many connections heard of it
--         {0, holder}       it was not: the token of another holder of it, "" if there is none; of a value longer than
--                           our tokens, the first 128 bytes; "released:" and a token if no client may have it yet;
--                           "shared:" if readers have it (R33).  Of several slots: the last one
-- A key of another type is the error WRONGTYPE; among several it is not the caller's.
-- The message to the group is the number of the slot, a space, and the token.

-- (holder.lua)
-- (give_back.lua)
-- (forget.lua) --[recorded]

local token, n, before = ARGV[1], #KEYS, 3 --[not recorded]
local token, n, before = ARGV[1], #KEYS / 2, 4 --[recorded]
local keep, ours, listeners, other = ARGV[3] ~= '0' and tonumber(ARGV[3]), false, 0, nil
for i = 1, n do
  forget(KEYS[n + i], token, tonumber(ARGV[4]) or -1) --[recorded]
  if redis.pcall('GET', KEYS[i]) == token then
    ours, other = true, token
    listeners = listeners + give_back(KEYS[i], token, keep, ARGV[2], ARGV[before + i] .. ' ' .. token)
  else
    local found, _, wrong = holder(KEYS[i])
    if wrong and n == 1 then
      return wrong
    end
    other = found
  end
end
return ours and {1, listeners} or {0, string.sub(other or '', 1, 128)}
