-- (clock.lua)

-- The waiters in order for a name (R42).
--
-- A ticket key is a sorted set with two members for each waiter: "t" and its token, whose score is the number of its
-- ticket; and "e" and its token, whose score is minus the end of that ticket, in ms of this master's TIME.  A ticket ends
-- `LIFE` after its waiter was heard last.  A ticket with a later end was put there before the clock was set back, and
-- has ended.
-- A waiter that has attempted with the lowest ticket has a third: "h" and the token of that attempt, whose score is
-- 0. If that token holds the name, its ticket is about to go.
-- While there may be tickets, the fence of the name is written with a zero in front, as 17 digits.  So acquire.lua, which
-- reads it anyway, knows that without another key, and no other client pays for it.

local LIFE = 1000
local now = clock()

-- The token whose ticket at `key` has the lowest number, and the ms for which it lasts; nil: no client waits.
local function first(key)
  for _, ended in ipairs({
    redis.call('ZRANGE', key, string.format('%.0f', -now), '(0', 'BYSCORE', 'LIMIT', 0, 1000),
    redis.call('ZRANGE', key, '-inf', string.format('(%.0f', -now - LIFE), 'BYSCORE', 'LIMIT', 0, 1000),
  }) do
    for _, member in ipairs(ended) do
      redis.call('ZREM', key, member)
      redis.call('ZREM', key, 't' .. string.sub(member, 2))
    end
  end
  local lowest = redis.call('ZRANGE', key, '(0', '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
  if lowest then
    local token = string.sub(lowest, 2)
    return token, -tonumber(redis.call('ZSCORE', key, 'e' .. token) or '0') - now
  end
end
