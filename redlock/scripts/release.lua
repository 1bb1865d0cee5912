-- Delete every name that the caller holds, and tell whoever waits for it (R24).
-- Or keep it from everybody for a while: then its value says who released it, and there is nothing to tell yet (R28).
-- Keys of others are left alone (P8).
--
-- KEYS  n lock keys
-- ARGV  token, and for `hold_at_least` the ms for which nobody may have the names
--
-- returns {1, listeners}    every name was the caller's; how many connections heard of it
--         {0, holder}       not all were: the token of somebody else who holds one, "" if nobody does ("''": somebody does, with an empty one)
--                           (of what is longer than any token of ours, the first 128 bytes);
--                           "released:" and a token if nobody may have it yet; "shared:" if readers have it (R33)
--         {-1}              the caller is one of its readers (R33), and is left alone
-- A key of another type is an error (WRONGTYPE), but the others are released.

local token, ours, other, listeners, failure, reader = ARGV[1], true, '', 0, nil, false
for i = 1, #KEYS do
  local found = redis.pcall('GET', KEYS[i])
  if found == token then
    if ARGV[2] then
      -- never for longer than the key would have lived; one that has 0 ms left goes by itself
      local keep, left = tonumber(ARGV[2]), redis.call('PTTL', KEYS[i])
      if left < 0 or left > keep then
        left = keep
      end
      if left > 0 then
        redis.call('SET', KEYS[i], 'released:' .. token, 'PX', left)
      end
    else
      redis.call('DEL', KEYS[i])
      -- pcall: where PUBLISH is not permitted the key is gone all the same, and waiters poll (R24)
      local heard = redis.pcall('PUBLISH', KEYS[i] .. ':released', token)
      if type(heard) == 'number' then
        listeners = listeners + heard
      end
    end
  else
    ours = false
    if type(found) == 'table' then
      local last = redis.pcall('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')
      if not last.err and redis.call('PTTL', KEYS[i]) ~= -1 then
        reader = reader or redis.call('ZSCORE', KEYS[i], token)
        found = tonumber(last[2]) > 0 and 'shared:'  -- or only a writer waits
      else
        failure = found
      end
    end
    other = found == '' and "''" or found or other
  end
end
if failure then
  return failure
end
if ours then
  return {1, listeners}
end
if reader then
  return {-1}
end
return {0, string.sub(other, 1, 128)}
