-- Give the names back to a master that lost or never had them, after an extension was won (R14).
-- Does nothing where another client holds one; the mark of a writer that waits for readers holds none (R33).  If the
-- fence on this master is greater, it stays: a failed attempt has left it, and it must not keep the names away.
-- A key that is the caller's and lives longer stays as well: after a hand-over the next process has extended it, and --[not shared]
-- the one before does not know that (C11). --[not shared]
-- The caller is put back among the readers (R33).  One that stays longer does so (C11). --[shared]
-- Where an expiry is confirmed by more than one clock (R35) it does nothing where another lease is on record with a greater --[recorded]
-- fence; a smaller one has ended, and goes.  It puts nothing on record: the next extension does, and until then this master is --[recorded]
-- no evidence of anything.  So a key that is the caller's lives as long as it did. --[recorded]
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off)
--       then their n grant keys --[recorded]
-- ARGV  n, token, ttl in ms, fence of the lease (decimal), life of a fence key in ms
--
-- returns {1}    every name is the caller's here now, and the fence keys live on (R20)
--         {0}    nothing was changed
-- A key of another type is an error (WRONGTYPE), and nothing is changed.  A value that is no fencing token stays.

-- (holder.lua) --[not shared]
-- (readers.lua) --[shared]
-- (record.lua) --[recorded]

local n, token, ttl, fence, last = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), #KEYS --[not recorded]
local n, token, ttl, fence, last = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), 2 * ARGV[1] --[recorded]
local stays, over, greater = {}, {}, {}
for i = 1, n do
  local found, left, wrong = holder(KEYS[i]) --[not shared]
  local found, wrong = writer(KEYS[i]) --[shared]
  local whose, its_fence = token, '0' --[not recorded]
  local _, _, its_fence, whose = recorded(KEYS[2 * n + i]) --[recorded]
  over[i] = whose and whose ~= token --[recorded]
  if wrong or (found and found ~= token) or (whose and whose ~= token and tonumber(its_fence) > fence) then
    return wrong or {0}
  end
  stays[i] = found and left > ttl --[not shared]
  stays[i] = found --[recorded, not shared]
  stays[i] = (tonumber(not found and redis.call('ZSCORE', KEYS[i], token)) or now) - now --[shared]
end
for i = n + 1, last do
  local stored = redis.call('GET', KEYS[i]) or '0'
  -- the zero in front stays: others may wait in order (R42)
  greater[i] = string.match(stored, '^%d+$') and fence > tonumber(stored) and (#stored == 17 and '%017.0f' or '%.0f')
end
for i = 1, n do
  if not stays[i] then --[not shared]
    redis.call('SET', KEYS[i], token, 'PX', ttl) --[not shared]
  end --[not shared]
  share(KEYS[i], token, math.max(ttl, stays[i])) --[shared]
  if over[i] then --[recorded]
    redis.call('DEL', KEYS[2 * n + i]) --[recorded]
  end --[recorded]
end
for i = n + 1, last do
  if greater[i] then
    redis.call('SET', KEYS[i], string.format(greater[i], fence), 'PX', ARGV[5])
  else
    redis.call('PEXPIRE', KEYS[i], ARGV[5])
  end
end
return {1}
