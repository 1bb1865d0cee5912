-- Who holds a name, for how long, and its fence.  Changes nothing.
--
-- KEYS  lock key, fence key
-- ARGV  how many readers to name; with a second argument the listeners are counted as well (R40)
--
-- returns {holder, pttl, fence, readers...}, or with listeners {holder, pttl, fence, listeners, readers...}: see below
-- A fence "0": none known.
-- A lock key of another type is the error WRONGTYPE, a fence key that holds none the error BADFENCE.

-- (seen.lua)
-- (fences.lua)

local fence, failure = greatest(2, 2)
return failure or seen(KEYS[1], fence, ARGV[1], ARGV[2])
