-- The holder of the lock at `key`, and the ms left (-1: without expiry): a token, or "shared:" for readers (R33);
-- nil and -2: it is free, or only a writer waits.  Third, an error: it is no lock.
local function holder(key)
  local found = redis.pcall('GET', key)
  if not found then
    return nil, -2
  end
  local left = redis.call('PTTL', key)
  if type(found) ~= 'table' then
    return found, left
  end
  local last = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last.err or left == -1 then
    return nil, left, last.err and last or found -- another type, or the ACL lacks what it takes to look for readers
  end
  local time = redis.call('TIME')
  left = tonumber(last[2]) - time[1] * 1000 - math.floor(time[2] / 1000)
  if left > 0 then
    return 'shared:', left
  end
  return nil, -2
end
