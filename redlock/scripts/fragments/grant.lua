-- Nearly always it is one free name, with a smaller fence or with none: two commands do it all.  (Only from Redis 7 on
-- does a script see that SET can return the old value.)  Whatever else is there is put back, and left to what follows.
if ARGV[1] == '1' and (#KEYS == 1 or redis.REDIS_VERSION_NUM) and redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then
  if #KEYS == 1 then --[not recorded]
    return {1, '0'} --[not recorded]
  end --[not recorded]
  local proposal = ARGV[4]
  do --[not recorded]
  if redis.call('SET', KEYS[3], '0 ' .. ARGV[3] .. ' ' .. proposal .. ' ' .. ARGV[2], 'NX', 'PX', ARGV[6]) then --[recorded]
    local stored = redis.pcall('SET', KEYS[2], proposal, 'PX', ARGV[5], 'GET')
    if not stored or (#stored == #proposal and stored < proposal and string.match(stored, '^%d+$')) then
      return {1, proposal}
    end
    redis.call('DEL', KEYS[3]) --[recorded]
    if type(stored) == 'string' then
      redis.call('SET', KEYS[2], stored, 'PX', ARGV[5])
    end
  end
  redis.call('DEL', KEYS[1])
end
