-- (record.lua)

-- Delete the record at `key` if it is of `token`, or of an ended lease, as the lease with `fence` is (P2).
local function forget(key, token, fence)
  local _, _, its_fence, whose = recorded(key)
  if whose == token or (whose and tonumber(its_fence) <= fence) then
    redis.call('DEL', key)
  end
end
