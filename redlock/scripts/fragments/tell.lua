-- Tell those who wait (R24), and say how many heard of it.
-- pcall: where PUBLISH is not permitted the key is gone all the same, and waiters poll.
local function tell(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message)
  return type(heard) == 'number' and heard or 0
end
