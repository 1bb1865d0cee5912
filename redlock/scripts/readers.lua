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
  local members = redis.pcall('ZCOUNT', key, '-inf', '+inf')
  if type(members) ~= 'number' or redis.call('PTTL', key) == -1 then
    return nil, type(members) == 'table' and members or found
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

-- The script ends with the error of a command, which gets an ERR.
local function fail(failure)
  error((string.gsub(failure, "^ERR ", "")), 0)
end

-- Put `member` there, for so many ms; `sign`: '' a reader, '-' the mark of a writer.
-- If the ACL lacks a right for that, a set without an expiry must not stay: nobody could ever have the name again.
local function put(key, member, sign, ms)
  local added = redis.call('ZADD', key, sign .. string.format('%.0f', now + ms), member)
  local settled, failure = pcall(settle, key)
  if not settled then
    if added == 1 then
      redis.call('ZREM', key, member)
    end
    fail(failure)
  end
end

-- Put `token`, which has `key` for itself, among readers.  If the ACL lacks a right for that, it keeps the key: its lease
-- goes on as a reader's, which no writer may meet.
local function share(key, token, ms)
  redis.call('DEL', key)
  local shared, failure = pcall(put, key, token, '', ms)
  if not shared then
    redis.call('SET', key, token, 'PX', ms)
    fail(failure)
  end
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
