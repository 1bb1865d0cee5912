-- (tickets.lua)

-- No client is granted a name here before the waiter with the lowest ticket (R42).  The ticket keys are taken from the end
-- of KEYS, and the token of the waiter from the end of ARGV; what is left is for the grant.
local mine = table.remove(ARGV)
for i = tonumber(ARGV[1]), 1, -1 do
  local key = table.remove(KEYS)
  local turn, left = first(key)
  if turn == mine then
    redis.call('ZREMRANGEBYSCORE', key, 0, 0)
    redis.call('ZADD', key, '0', 'h' .. ARGV[2])
  elseif turn then
    local found = redis.pcall('GET', KEYS[i])
    if type(found) ~= 'string' then
      return {0, '0', 'ticket:' .. turn, left}
    elseif found ~= ARGV[2] then
      return {0, '0', string.sub(found, 1, 128), redis.call('PTTL', KEYS[i])}
    end
  end
end
