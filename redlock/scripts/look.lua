-- Who holds each of many names, for a list of locks (R29).  Changes nothing.
--
-- KEYS  n lock keys, then their n fence keys
-- ARGV  how many readers of each to name
--
-- returns for each name {holder, pttl, fence, listeners, readers...}, as status.lua does where listeners are counted; or an
--         error, if its key has another type.  A fence key that holds none counts as "0"

-- (seen.lua)
-- (fences.lua)

local n, names = #KEYS / 2, {}
for i = 1, n do
  names[i] = seen(KEYS[i], greatest(n + i, n + i) or '0', ARGV[1], true)
end
return names
