-- Delete every name that the caller holds, and announce it to waiters (R24).
-- Or keep it from everybody for a while: then its value says who released it, and there is nothing to tell yet (R28). --[not shared]
-- The caller leaves the readers of every name (R33).  The last one to leave is announced.  Where a downgrade did not arrive, --[shared]
-- the caller's own key is deleted. --[shared]
-- Where an expiry is confirmed by more than one clock (R35), the caller is not on record any more. --[recorded]
-- A release has a fence, so it also takes away an earlier record: that lease has ended (P2).  A rollback has none. --[recorded, not shared]
-- Keys of others are left alone (P8).
--
-- KEYS  n lock keys
--       then their n grant keys --[recorded]
-- ARGV  token
--       the fence of the lease ("": a rollback, or not known) --[recorded, not shared]
--       and for `hold_at_least` the ms for which no client may have the names --[not shared]
--
-- returns {1, listeners}    every name was the caller's; how many connections heard of it
--         {0, holder}       not all were: the token of another holder of one, "" if there is none ("''": there is,
--                           with an empty one); of a value longer than our tokens, the first 128 bytes;
--                           "released:" and a token if no client may have it yet; "shared:" if readers have it (R33)
--         {-1}              the caller is one of its readers (R33), and is left alone --[not shared]
-- A key of another type is an error (WRONGTYPE), but the others are released.

-- (released.lua) --[not shared]
-- (owned.lua) --[not shared]
-- (readers.lua) --[shared]
-- (give_back.lua)
-- (forget.lua) --[recorded]

local token, keep, n = ARGV[1], tonumber(ARGV[2]), #KEYS --[not recorded]
local token, fence, keep, n = ARGV[1], tonumber(ARGV[2]) or -1, tonumber(ARGV[3]), #KEYS / 2 --[recorded]
local ours, other, failure, reads = owned(token, 1, n) --[not shared]
local ours, other, failure, reads = true, '' --[shared]
local listeners = 0
for i = 1, n do
  forget(KEYS[n + i], token, fence) --[recorded]
  local mine = ours or redis.pcall('GET', KEYS[i]) == token --[not shared]
  local found, wrong = writer(KEYS[i]) --[shared]
  local mine = found == token --[shared]
  if mine then
    listeners = listeners + give_back(KEYS[i], token, keep)
  elseif not found and not wrong and redis.call('ZREM', KEYS[i], token) == 1 then --[shared]
    tidy(KEYS[i]) --[shared]
    if redis.call('ZCOUNT', KEYS[i], '0', '+inf') == 0 then --[shared]
      listeners = listeners + tell(KEYS[i] .. ':released', token) --[shared]
    end --[shared]
  else --[shared]
    ours, failure, other = false, failure or wrong, found == '' and "''" or found or other --[shared]
  end
end
return failure or ours and {1, listeners} or reads and {-1} or {0, string.sub(other, 1, 128)}
