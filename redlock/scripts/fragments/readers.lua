-- (clock.lua)

-- What a master knows of the readers of a name (R33).
--
-- They are a sorted set under the lock's own key: a member is a token, its score the end of that reader in ms of this
-- master's TIME.  A writer that waits has a mark there, which keeps new readers away: its score is minus its end.
-- The set expires with its last member. A set without an expiry is not ours, and an error as any other type is.

local now = clock()

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
  redis.call('ZREMRANGEBYSCORE', key, string.format('-%.0f', now), string.format('%.0f', now))
end

-- Let `key` live as long as its last member.
local function tidy(key)
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
-- If the ACL lacks a right for that, a set without an expiry must not stay: no client could ever have the name again.
local function put(key, member, sign, ms)
  local added = redis.call('ZADD', key, sign .. string.format('%.0f', now + ms), member)
  local tidied, failure = pcall(tidy, key)
  if not tidied then
    if added == 1 then
      redis.call('ZREM', key, member)
    end
    fail(failure)
  end
end

-- Make `token` a reader of `key`, which it may have for itself.  If the ACL lacks a right for that, it keeps the key: its
-- lease goes on as a reader's, which no writer may meet.  True: it had the key for itself.
local function share(key, token, ms)
  if not writer(key) then
    return put(key, token, '', ms)
  end
  redis.call('DEL', key)
  local shared, failure = pcall(put, key, token, '', ms)
  if not shared then
    redis.call('SET', key, token, 'PX', ms)
    fail(failure)
  end
  return true
end

-- What keeps a new reader from `key`, and the ms left (-1: without expiry): the token that has it for itself; "waiting:"
-- while the mark of a writer lasts; or "shared:full" until the first of its `most` readers ends.  Third, an error.
local function hindrance(key, most)
  local found, wrong = writer(key)
  if found or wrong then
    return found, redis.call('PTTL', key), wrong
  end
  local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or now)
  if first < 0 then
    return 'waiting:', -first - now
  elseif redis.call('ZCOUNT', key, '-inf', '+inf') >= most then
    return 'shared:full', first - now
  end
end
