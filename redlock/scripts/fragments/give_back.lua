-- (tell.lua)

-- Give back the name at `key`, which is the caller's: how many connections heard of it.  With `keep` no client may have
-- it for so many ms: then its value says who released it, and there is nothing to tell yet (R28).
local function give_back(key, token, keep, ...)
  if not keep then
    redis.call('DEL', key)
    return tell(key .. ':released', token) + (... and tell(...) or 0)
  end
  -- never for longer than the key would have lived; a key that has 0 ms left goes by itself
  local left = redis.call('PTTL', key)
  if left < 0 or left > keep then
    left = keep
  end
  if left > 0 then
    redis.call('SET', key, 'released:' .. token, 'PX', left)
  end
  return 0
end
