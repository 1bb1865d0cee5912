-- Set the TTL of every name that the caller still holds, if it holds them all (R12).
-- It never creates a key: an extension brings nothing back.
-- The caller reads them (R33).  A name that it has alone becomes its place among readers: so a downgrade is an extension, --[shared]
-- and the next extension makes up for a lost one.  A full master carries it out as well: it refuses a script whose first --[shared]
-- write takes memory, and the first write is a deletion here. --[shared]
-- Where an expiry is confirmed by more than one clock (R35): the extension leaves its stamp on record. --[recorded, not shared]
-- Where an expiry is confirmed by more than one clock (R35): the caller is not on record any more. --[recorded, shared]
-- The first extension of a lease that was handed over, by a client that keeps no records (R35): not where the lease is on --[resumed]
-- record.  Its client has to extend it on record, or its masters say that it has ended. --[resumed]
--
-- KEYS  n lock keys, then their n fence keys (none: fencing is off)
--       then their n grant keys --[recorded]
--       then their n grant keys --[resumed]
-- ARGV  n, token, ttl in ms, life of a fence key in ms
--       life of a record in ms, stamp, fence of the lease ("": not known) --[recorded, not shared]
--       where the caller has to be a reader already: anything --[shared]
--
-- returns {1}            extended, and the fence keys live on (R20)
--         {0, holder}    not all ours: the token of another holder of one, "" if there is none ("''": there is, with
--                        an empty one); "shared:" if readers do (R33); of a value longer than our tokens, the first
--                        128 bytes.  A writer that waits for readers has left a mark, and holds none
--         {-1}           the caller is one of its readers (R33) --[not shared]
--         {-2}           it has to be a reader, and has one for itself; nothing was changed --[shared]
--         {-3}           the lease is on record; nothing was changed --[resumed]
-- The error STALE: a later extension was here, or another lease is on record; nothing was changed. --[recorded, not shared]
-- A key of another type is the error WRONGTYPE.

-- (owned.lua)
-- (tell.lua) --[shared]
-- (forget.lua) --[recorded, shared]
-- (extension.lua) --[recorded, not shared]
-- (record.lua) --[resumed]

local n, token, ttl = tonumber(ARGV[1]), ARGV[2], ARGV[3]
for _ = 1, n do --[resumed]
  local _, _, _, whose = recorded(table.remove(KEYS)) --[resumed]
  if whose == token then --[resumed]
    return {-3} --[resumed]
  end --[resumed]
end --[resumed]
local ours, other, failure, reads = owned(token, 1, n)
if not ours then
  return failure or reads and {-1} or {0, string.sub(other, 1, 128)}
end
local records, stale = extensions(2 * n + 1, n, token, ttl, ARGV[6], ARGV[7]) --[recorded, not shared]
if stale then --[recorded, not shared]
  return stale --[recorded, not shared]
end --[recorded, not shared]
for i = 1, ARGV[5] and n or 0 do --[shared]
  if writer(KEYS[i]) then --[shared]
    return {-2} --[shared]
  end --[shared]
end --[shared]
for i = 1, n do
  redis.call('PEXPIRE', KEYS[i], ttl) --[not shared]
  if share(KEYS[i], token, tonumber(ttl)) then --[shared]
    tell(KEYS[i] .. ':released', token) -- readers that wait for the writer may come in now --[shared]
  end --[shared]
  redis.call('SET', KEYS[2 * n + i], records[i], 'PX', ARGV[5]) --[recorded, not shared]
  forget(KEYS[2 * n + i], token, -1) --[recorded, shared]
end
for i = n + 1, #KEYS do --[not recorded]
for i = n + 1, 2 * n do --[recorded]
  redis.call('PEXPIRE', KEYS[i], ARGV[4])
end
return {1}
