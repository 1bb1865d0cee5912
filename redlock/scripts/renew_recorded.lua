-- What extend_recorded.lua does for one lease, for many (R12, R20, R35).  One that is not extended changes nothing for the
-- others.
--
-- KEYS  of each lease: its lock keys, then its fence keys, then its grant keys
-- ARGV  life of a fence key in ms, life of a record in ms, mark, then of each lease: so many names, token, ttl in ms, its
--       fence ("": not known)
--
-- returns of each lease, in the same order
--         1         extended, and on record
--         holder    not all ours: the token of somebody else who holds one, "" if nobody does
--                   (of what is longer than any token of ours, the first 128 bytes)
--         an error  a key has another type; or STALE, as extend_recorded.lua

-- Nearly always it is one name that is ours, and an earlier extension of it is on record.  What else is there is put back,
-- and left to what follows.
local life, long, mark, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[3])
local function renewed(lock, fence_key, grant, token, ttl, fence)
  if not number or fence == '' or not redis.REDIS_VERSION_NUM or redis.pcall('GET', lock) ~= token then
    return false
  end
  local record = mark .. ' ' .. ttl .. ' ' .. fence .. ' ' .. token
  local old = redis.pcall('SET', grant, record, 'PX', long, 'GET')
  local before = type(old) == 'string' and string.find(old, token, -#token, true) and string.match(old, '^%d+')
  if not before or tonumber(before) >= number then
    if not old then
      redis.call('DEL', grant)
    elseif type(old) == 'string' then
      redis.call('SET', grant, old, 'PX', long)
    end
    return false
  end
  redis.call('PEXPIRE', lock, ttl)
  redis.call('PEXPIRE', fence_key, life)
  return true
end

-- (records.lua)

local answers, first = {}, 1
for arg = 4, #ARGV, 4 do
  local n, token, ttl = tonumber(ARGV[arg]), ARGV[arg + 1], ARGV[arg + 2]
  local answer, other, records = 1, '', {}
  local done = n == 1 and renewed(KEYS[first], KEYS[first + 1], KEYS[first + 2], token, ttl, ARGV[arg + 3])
  for i = first, done and 0 or first + n - 1 do
    if redis.pcall('GET', KEYS[i]) ~= token then
      local found, _, wrong = holder(KEYS[i])
      if wrong or found == 'shared:' then
        answer = wrong or redis.pcall('GET', KEYS[i])
      elseif answer == 1 then
        answer = 0
      end
      other = found or other
    end
  end
  if answer == 1 and not done then
    for i = first, first + n - 1 do
      local record = extension(KEYS[i + 2 * n], token, ttl, mark, ARGV[arg + 3])
      records[i], answer = record, record and answer or nil
    end
    answer = answer or redis.error_reply('STALE a later extension of this lease was here, or another one is on record')
  end
  if answer == 1 then
    for i = first, done and 0 or first + n - 1 do
      redis.call('PEXPIRE', KEYS[i], ttl)
      redis.call('PEXPIRE', KEYS[i + n], life)
      redis.call('SET', KEYS[i + 2 * n], records[i], 'PX', long)
    end
  elseif answer == 0 then
    answer = string.sub(other, 1, 128)
  end
  answers[#answers + 1] = answer
  first = first + 3 * n
end
return answers
