-- Stand in line for names with a ticket (R42): draw it, keep it, or give it back.
--
-- KEYS  n lock keys, then their n fence keys, then their n ticket keys
-- ARGV  n, token of the waiter, number of its ticket (decimal; "0": it stands here no longer), life of a fence key in ms,
--       "new" if the number is a proposal, "again" if it has settled
--
-- returns {1, fence, turns, wait}     it stands in line: after so many releases it is its turn, 0: now; and the ms until
--                                     every name can be its own here, unless a holder stays for longer (-1: that is not
--                                     known).  For several names the greater ones
--         {0, fence}                  a proposal that is not greater than the fence that is there (R18); nothing was changed
--         {2, fence}                  it stands here no longer.  It is announced if the turn has passed on; and where
--                                     no client waits, the fence says so again
-- The number of a ticket is a fence as well, so no later one is smaller (R16).
-- A lock key of another type is the error WRONGTYPE, a fence key that holds none the error BADFENCE.

-- (fences.lua)
-- (holder.lua)
-- (tickets.lua)
-- (tell.lua)

local n, token, number, life = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
local shown, failure, fence = greatest(n + 1, 2 * n)
if failure or (ARGV[5] == 'new' and number <= fence and number > 0) then
  return failure or {0, shown}
end

for i = 1, number == 0 and n or 0 do
  local key = KEYS[2 * n + i]
  local turn = first(key)
  redis.call('ZREM', key, 't' .. token)
  redis.call('ZREM', key, 'e' .. token)
  redis.call('ZREMRANGEBYSCORE', key, 0, 0)
  local stored = redis.call('GET', KEYS[n + i])
  if stored and #stored == 17 and redis.call('ZCOUNT', key, '-inf', '+inf') == 0 then
    redis.call('SET', KEYS[n + i], string.format('%.0f', tonumber(stored)), 'PX', life)
  end
  if turn == token and not holder(KEYS[i]) then
    tell(KEYS[i] .. ':released', token)
  end
end
if number == 0 then
  return {2, shown}
end

local most, wait = 0, 0
for i = 1, n do
  local key, found, left, wrong = KEYS[2 * n + i], holder(KEYS[i])
  if wrong then
    return wrong
  end
  local _, lasts = first(key)
  redis.call('ZADD', key, ARGV[3], 't' .. token)
  redis.call('ZADD', key, string.format('%.0f', -now - LIFE), 'e' .. token)
  redis.call('PEXPIRE', key, LIFE)
  local before = redis.call('ZCOUNT', key, '(0', '(' .. ARGV[3])
  left = found and left or 0
  if before > 0 and left ~= -1 then
    left = math.max(left, lasts)
  end
  wait = (wait == -1 or left == -1) and -1 or math.max(wait, left)
  most = math.max(most, before + (found and not redis.call('ZSCORE', key, 'h' .. found) and 1 or 0))
  local stored = redis.call('GET', KEYS[n + i]) or '0'
  if #stored ~= 17 or tonumber(stored) < number then
    redis.call('SET', KEYS[n + i], string.format('%017.0f', math.max(tonumber(stored), number)), 'PX', life)
  end
end
return {1, string.format('%.0f', math.max(fence, number)), most, wait}
