-- Who holds each of many names, for a list of locks (R29).  Changes nothing.
--
-- KEYS  n lock keys, then their n fence keys
--
-- returns for each name {holder, pttl, fence}, as `status` does; or an error, if its key has another type
-- Of what is longer than any token of ours, the first 128 bytes.  A fence key that holds none counts as "0".

local n, answers = #KEYS / 2, {}
for i = 1, n do
  local holder, stored, fence = redis.pcall('GET', KEYS[i]), redis.pcall('GET', KEYS[n + i]), '0'
  if type(stored) == 'string' and string.match(stored, '^%d+$') and tonumber(stored) < 9007199254740991 then
    fence = string.format('%.0f', tonumber(stored))
  end
  if type(holder) == 'table' then
    answers[i] = holder
  else
    answers[i] = {string.sub(holder or '', 1, 128), redis.call('PTTL', KEYS[i]), fence}
  end
end
return answers
