-- (tell.lua)

-- Nearly always it is one name, and the caller's. --[not recorded]
-- Nearly always it is one name, and the caller's: then so is the record. --[recorded]
if #KEYS == 1 and not ARGV[2] and redis.pcall('GET', KEYS[1]) == ARGV[1] then --[not recorded]
if #KEYS == 2 and not ARGV[3] and redis.pcall('GET', KEYS[1]) == ARGV[1] then --[recorded]
  redis.call('DEL', unpack(KEYS))
  return {1, tell(KEYS[1] .. ':released', ARGV[1])}
end
