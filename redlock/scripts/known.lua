-- Say whose data this master has, and for how long clients have known that (R21).
--
-- KEYS  the record: a replication ID, and since when clients have known it, in ms on this master's clock
--
-- returns {ID, for how many ms clients have known it}; -1 ms: the server was no replica since it started.
-- {'', -1} where it does not say: INFO is not permitted, or it has no such ID.  A replica is the error READONLY.
--
-- A server that was a replica for a moment has forgotten what it granted before.  Its run_id and its uptime stay, but it
-- has another ID, and a second_repl_offset.  Only then there is a record.  It does not end: an ID never comes back, so
-- what is on record stays true, and the next client may come late.  FLUSHALL drops it, and clients wait once more.

local info = redis.pcall('INFO', 'replication')
local id = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
if not id then
  return {'', -1}
end
if string.find(info, 'role:slave', 1, true) then
  return redis.error_reply('READONLY it is a replica: its data may be replaced at any time')
end
if (string.match(info, 'second_repl_offset:(%-?%d+)') or '-1') == '-1' then
  return {id, -1}
end
local time = redis.pcall('TIME')
if time.err then
  return {id, 0}
end
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local found = redis.pcall('GET', KEYS[1])
local since = type(found) == 'string' and tonumber(string.match(found, '^' .. id .. ' (%d+)$'))
if not since or since > now then -- its clock was set back: the safe side is now
  since = now
  redis.pcall('SET', KEYS[1], string.format('%s %.0f', id, now))
end
return {id, now - since}
