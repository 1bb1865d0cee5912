-- Who holds each of many names, for a list of locks (R29).  Changes nothing.
--
-- KEYS  n lock keys, then their n fence keys
-- ARGV  how many readers of each to name
--
-- returns for each name {holder, pttl, fence, listening}, or {"shared:", pttl, fence, listening, token...}, as `status` does
-- where that is asked; or an error, if its key has another type
-- Of what is longer than any token of ours, the first 128 bytes.  A fence key that holds none counts as "0".

local n, answers, time = #KEYS / 2, {}, redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = string.format('(%.0f', now)
for i = 1, n do
  local holder, stored, fence = redis.pcall('GET', KEYS[i]), redis.pcall('GET', KEYS[n + i]), '0'
  if type(stored) == 'string' and string.match(stored, '^%d+$') and tonumber(stored) < 9007199254740991 then
    fence = string.format('%.0f', tonumber(stored))
  end
  local pttl = redis.call('PTTL', KEYS[i])
  local listens = redis.pcall('PUBSUB', 'NUMSUB', KEYS[i] .. ':released')
  local listening = tonumber(listens[2]) or -1
  if type(holder) == 'table' then
    local readers = redis.pcall('ZRANGE', KEYS[i], at, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1])
    if readers.err or pttl == -1 then
      answers[i] = readers.err and readers or holder
    elseif #readers == 0 then
      answers[i] = {'', -2, fence, listening}
    else
      pttl = tonumber(redis.call('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')[2]) - now
      answers[i] = {'shared:', pttl, fence, listening, unpack(readers)}
    end
  else
    answers[i] = {string.sub(holder or '', 1, 128), pttl, fence, listening}
  end
end
return answers
