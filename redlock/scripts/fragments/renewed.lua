-- Nearly always it is one name that is ours, and an earlier extension of it is on record: then this renews it.  What else is
-- there is put back, and left to what follows.
local stamp, number = ARGV[3], tonumber(ARGV[3])
local function renewed(lock, fence_key, grant, token, ttl, fence)
  if not number or fence == '' or not redis.REDIS_VERSION_NUM or redis.pcall('GET', lock) ~= token then
    return false
  end
  local record = stamp .. ' ' .. ttl .. ' ' .. fence .. ' ' .. token
  local old = redis.pcall('SET', grant, record, 'PX', ARGV[2], 'GET')
  local before = type(old) == 'string' and string.find(old, token, -#token, true) and string.match(old, '^%d+')
  if not before or tonumber(before) >= number then
    if not old then
      redis.call('DEL', grant)
    elseif type(old) == 'string' then
      redis.call('SET', grant, old, 'PX', ARGV[2])
    end
    return false
  end
  redis.call('PEXPIRE', lock, ttl)
  redis.call('PEXPIRE', fence_key, ARGV[1])
  return true
end
