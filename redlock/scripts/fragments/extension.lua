-- (record.lua)

-- What an extension puts on record at `key`.  nil: a later one was here; or the record is of a lease that may have
-- been granted after this one.  Marks only go up, so what arrives late changes nothing.
-- A record whose fence is not known has the greatest: no release but its own takes it away.
local function extension(key, token, ttl, stamp, fence)
  local before, _, its_fence, whose = recorded(key)
  if whose == token then
    if string.sub(stamp, 1, 1) ~= 'r' and (tonumber(before) or math.huge) >= tonumber(stamp) then
      return nil
    end
    fence = fence == '' and its_fence or fence
  elseif whose and (fence == '' or tonumber(its_fence) > tonumber(fence)) then
    return nil
  end
  return stamp .. ' ' .. ttl .. ' ' .. (fence == '' and '9007199254740991' or fence) .. ' ' .. token
end

-- The same for the `n` names from KEYS[first] on.  nil, and an error: one of them cannot be extended.
local function extensions(first, n, ...)
  local records = {}
  for i = 1, n do
    records[i] = extension(KEYS[first + i - 1], ...)
    if not records[i] then
      return nil, redis.error_reply('STALE a later extension of this lease was here, or another one is on record')
    end
  end
  return records
end
