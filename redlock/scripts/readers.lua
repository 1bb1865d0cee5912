-- What a master knows of the readers of a name (R33).  Every script about readers begins with this text.
--
-- They are a sorted set under the lock's own key: a member is a token, its score the end of that reader in ms of this
-- master's TIME.  A writer that waits has a mark there, which keeps new readers away: its score is minus its end.
-- The set has an expiry, that of its last member.  One without is not ours, and an error as any other type is.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = string.format('%.0f', now)

-- The token that has `key` for itself.  nil: none has, and members that have ended are gone.  nil and an error: it is
-- something else.
local function writer(key)
  local found = redis.pcall('GET', key)
  if type(found) ~= 'table' then
    return found or nil
  end
  if type(redis.pcall('ZCOUNT', key, '-inf', '+inf')) ~= 'number' or redis.call('PTTL', key) == -1 then
    return nil, found
  end
  redis.call('ZREMRANGEBYSCORE', key, '-' .. at, at)
end

-- Let `key` live as long as its last member.
local function settle(key)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  if last then
    local mark = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    redis.call('PEXPIRE', key, string.format('%.0f', math.max(tonumber(last), -tonumber(mark)) - now))
  end
end

-- Put `member` there, for so many ms; `sign`: '' a reader, '-' the mark of a writer.
local function put(key, member, sign, ms)
  redis.call('ZADD', key, sign .. string.format('%.0f', now + ms), member)
  settle(key)
end

-- Whose record is at `key` (R35); nil: there is none.
local function on_record(key)
  local found = redis.pcall('GET', key)
  return found and (type(found) == 'string' and string.match(found, '^%S+ %d+ %d+ (.*)$') or '') or nil
end

-- The records of `token` go, from the grant key KEYS[first] on: it has been a writer, and is none any more (R35).
local function forget(first, token)
  for i = first, #KEYS do
    if on_record(KEYS[i]) == token then
      redis.call('DEL', KEYS[i])
    end
  end
end
