-- Tell this master the longest TTL that the caller may ask for, and learn the longest that
-- any client announced (R21).
--
-- KEYS  the key of the announcement
-- ARGV  max_ttl in ms, and ms for which that counts
--
-- returns {the largest value announced, ms for which it counts yet}; -1 ms: it does not end
--
-- A greater value is stored at once, and an equal one counts anew.  A smaller one changes nothing:
-- the greater one ends when no client with it is left, and then the next announcement is stored.
--
-- Clients of 0.1 announce once, on connecting, and for good. Their value does not expire here, nor does a greater one
-- in its place: they would not announce theirs again. It ends when the key is deleted.
--
-- A string that is no number is replaced; another type is the error BADMAXTTL. So is a number that no client can have
-- announced: it may have replaced the largest one.

local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' then
  if not string.find(found.err, 'WRONGTYPE', 1, true) then
    return found
  end
  found = '9007199254740992'
end
local known, own = tonumber(found or '0') or 0, tonumber(ARGV[1])
if known >= 9007199254740992 then
  return redis.error_reply('BADMAXTTL ' .. KEYS[1] .. ' does not hold the max_ttl of a client: delete it')
end
local left = known > 0 and redis.call('PTTL', KEYS[1]) or 0
if known > own then
  return {known, left}
end
if left == -1 then
  if known < own then
    redis.call('SET', KEYS[1], ARGV[1])
  end
  return {own, -1}
end
if known < own then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
elseif type(redis.pcall('PEXPIRE', KEYS[1], ARGV[2])) == 'table' then
  return {own, left} -- a master that takes no writes is told again, and keeps its connections
end
return {own, tonumber(ARGV[2])}
