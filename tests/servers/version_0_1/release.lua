-- Delete every name that the caller holds, and tell whoever waits for it (section 4).
-- Keys of others are left alone (P8).
--
-- KEYS  n lock keys
-- ARGV  token
--
-- returns {1, listeners}    every name was the caller's; how many connections heard of it
--         {0, holder}       not all were: the token of somebody else who holds one, "" if nobody does

local token, ours, other, listeners = ARGV[1], true, '', 0
for i = 1, #KEYS do
  local found = redis.call('GET', KEYS[i])
  if found == token then
    redis.call('DEL', KEYS[i])
    -- pcall: where PUBLISH is not permitted the key is gone all the same, and waiters poll (R24)
    local heard = redis.pcall('PUBLISH', KEYS[i] .. ':released', token)
    if type(heard) == 'number' then
      listeners = listeners + heard
    end
  else
    ours = false
    other = found or other
  end
end
if ours then
  return {1, listeners}
end
return {0, other}
