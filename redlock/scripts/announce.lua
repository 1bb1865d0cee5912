-- Tell this master the longest TTL that the caller may ask for, and learn the longest that
-- anybody announced (R21).  The value is raised and never lowered.
--
-- KEYS  the key of the announcement
-- ARGV  max_ttl in ms
--
-- returns the largest value announced, in ms
--
-- What is no number is replaced, and what is no string is the error BADMAXTTL.  A number that no client can have announced is not: it may stand where the largest was.

local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' then
  if not string.find(found.err, 'WRONGTYPE', 1, true) then
    return found
  end
  found = '9007199254740992'
end
local known = tonumber(found or '0') or 0
if known >= 9007199254740992 then
  return redis.error_reply('BADMAXTTL ' .. KEYS[1] .. ' does not hold the max_ttl of a client: delete it')
end
if known >= tonumber(ARGV[1]) then
  return known
end
redis.call('SET', KEYS[1], ARGV[1])
return tonumber(ARGV[1])
