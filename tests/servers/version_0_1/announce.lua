-- Tell this master the longest TTL that the caller may ask for, and learn the longest that
-- anybody announced (R21).  The value is raised and never lowered.
--
-- KEYS  the key of the announcement
-- ARGV  max_ttl in ms
--
-- returns the largest value announced, in ms

local known = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
if known >= tonumber(ARGV[1]) then
  return known
end
redis.call('SET', KEYS[1], ARGV[1])
return tonumber(ARGV[1])
