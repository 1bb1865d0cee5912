-- Who holds a name, for how long, and its fence.  Changes nothing.
--
-- KEYS  lock key, fence key
--
-- returns {holder, pttl, fence}    "" and -2 if nobody holds it; pttl -1: a key without expiry;
--                                  fence "0": none known

local holder = redis.call('GET', KEYS[1])
return {holder or '', redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or '0'}
