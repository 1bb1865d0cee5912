-- Give the caller the name at `key`.  If it `stores` its fence, that goes to `fence_key`; else the fence that is
-- there lives on (R18, R20).
local function take(key, fence_key, stores, grant)
  redis.call('SET', key, ARGV[2], 'PX', ARGV[3]) --[not shared]
  put(key, ARGV[2], '', tonumber(ARGV[3])) --[shared]
  if stores then
    redis.call('SET', fence_key, ARGV[4], 'PX', ARGV[5])
    redis.call('SET', grant, '0 ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[2], 'PX', ARGV[6]) --[recorded, not shared]
  elseif fence_key then
    redis.call('PEXPIRE', fence_key, ARGV[5])
  end
end
