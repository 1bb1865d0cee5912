-- (holder.lua) --[not shared]
-- (readers.lua) --[shared]

-- Whether `token` has the names at KEYS[first] to KEYS[last]. --[not shared]
-- Whether `token` reads the names at KEYS[first] to KEYS[last], or has them for itself. --[shared]
-- Second, the token of another client that has one: "" if none has ("''": one has, with an empty token), "shared:" if
-- readers have it (R33).  Third, an error: one is no lock.  Fourth, true if `token` is a reader of one.
local function owned(token, first, last)
  local ours, other, failure, reads = true, '', nil, false
  for i = first, last do
    local found, wrong = writer(KEYS[i]) --[shared]
    if found ~= token and (found or wrong or not redis.call('ZSCORE', KEYS[i], token)) then --[shared]
    if redis.pcall('GET', KEYS[i]) ~= token then --[not shared]
      local found, _, wrong = holder(KEYS[i]) --[not shared]
      reads = reads or found == 'shared:' and type(redis.pcall('ZSCORE', KEYS[i], token)) == 'string' --[not shared]
      ours, failure = false, failure or wrong
      other = found == '' and "''" or found or other
    end
  end
  return ours, other, failure, reads
end
