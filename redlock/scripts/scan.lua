-- One step through the keys of a master, for a list of locks (R29).  Changes nothing.
--
-- KEYS  none: a step may find any key
-- ARGV  cursor ("0": the first step), pattern, how many keys to look at
--
-- returns {cursor, keys}    cursor "0": that was the last step.  Some perhaps twice
-- The user needs the right to SCAN, which no other script asks for.

return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
