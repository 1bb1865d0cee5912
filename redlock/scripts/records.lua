-- What a master has on record of who was granted a name (R35).  Scripts that mind records begin with this text.
--
-- A grant key is "MARK TTL FENCE TOKEN": TOKEN was granted the name here with this fence, and has not released it.
-- MARK: "0", or that of its last extension here; "r" and something random if its extensions have no common order.
-- TTL: in ms, as it was asked for.  It stays when the lock key goes.  Where a lock key is a token's, the record is that
-- token's, or there is none.

-- The four of `key`; nil if there is none.  What is no record is somebody's all the same.
local function recorded(key)
  local found = redis.pcall('GET', key)
  if found then
    local mark, ttl, fence, token = string.match(type(found) == 'string' and found or '', '^(%S+) (%d+) (%d+) (.*)$')
    if mark then
      return mark, ttl, fence, token
    end
    return '?', '0', '9007199254740991', ''
  end
end

-- Who has `key`, and the ms left (-1: without expiry): a token, or "shared:" for readers (R33); nil: nobody has, or only
-- a writer waits.  Third, an error: it is no lock.
local function holder(key)
  local found, left = redis.pcall('GET', key), redis.call('PTTL', key)
  if type(found) ~= 'table' then
    return found or nil, left
  end
  local last = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last.err or left == -1 then
    return nil, left, last.err and last or found
  end
  local time = redis.call('TIME')
  left = tonumber(last[2]) - time[1] * 1000 - math.floor(time[2] / 1000)
  return left > 0 and 'shared:' or nil, left
end

-- The greatest of the fences at these KEYS, and whether there may be tickets for one of the names (R42).  nil, and an
-- error: one of them is none.
local function greatest(first, last)
  local fence, lined = 0, false
  for i = first, last do
    local stored = redis.pcall('GET', KEYS[i])
    if stored then
      if type(stored) ~= 'string' or not string.match(stored, '^%d+$') or tonumber(stored) >= 9007199254740991 then
        if type(stored) == 'string' then
          stored = string.gsub(string.sub(stored, 1, 20), '[^ -~]', '?')
        elseif string.find(stored.err, 'WRONGTYPE', 1, true) then
          stored = 'a value of another type'
        else
          return nil, stored
        end
        return nil, redis.error_reply('BADFENCE ' .. KEYS[i] .. ' does not hold a fencing token but ' .. stored)
      end
      fence, lined = math.max(fence, tonumber(stored)), lined or #stored == 17
    end
  end
  return fence, nil, lined
end

-- What an extension puts on record at `key`.  nil: a later one was here; or the record is that of a lease that may have
-- been granted after this one.  Marks only go up, so what arrives late changes nothing.
-- A record whose fence nobody knows has the greatest: no release but its own takes it away.
local function extension(key, token, ttl, mark, fence)
  local before, _, its_fence, whose = recorded(key)
  if whose == token then
    if string.sub(mark, 1, 1) ~= 'r' and (tonumber(before) or math.huge) >= tonumber(mark) then
      return nil
    end
    fence = fence == '' and its_fence or fence
  elseif whose and (fence == '' or tonumber(its_fence) > tonumber(fence)) then
    return nil
  end
  return mark .. ' ' .. ttl .. ' ' .. (fence == '' and '9007199254740991' or fence) .. ' ' .. token
end
