-- What extend.lua does for one lease, for many (R12, R20): set the TTL of every name of a lease that its caller
-- still holds, if it holds them all.  One that is not extended changes nothing for the others.
-- It never creates a key: an extension brings nothing back.
--
-- KEYS  of each lease: its lock keys, then its fence keys (none: fencing is off)
-- ARGV  life of a fence key in ms, then of each lease: so many lock keys, so many fence keys, token, ttl in ms
--
-- returns of each lease, in the same order
--         1         extended, and its fence keys live on
--         holder    not all ours: the token of somebody else who holds one, "" if nobody does ("''": somebody does, with an empty one)
--                   (of what is longer than any token of ours, the first 128 bytes)
--         an error  a key has another type: readers have it, for one.  The mark of a writer that waits for readers
--                   holds none (R33)

local life, answers, first = ARGV[1], {}, 1

for arg = 2, #ARGV, 4 do
  local last = first + tonumber(ARGV[arg]) - 1
  local last_fence, token, ttl = last + tonumber(ARGV[arg + 1]), ARGV[arg + 2], ARGV[arg + 3]

  local answer, other, failure = 1, '', nil
  for i = first, last do
    -- pcall: a key of another type is an error of this lease alone
    local found = redis.pcall('GET', KEYS[i])
    if found ~= token then
      answer = 0
      if type(found) == 'table' then
        local last = redis.pcall('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')
        if last.err or tonumber(last[2]) > 0 or redis.call('PTTL', KEYS[i]) == -1 then
          failure = found
        end
        found = false
      end
      other = found == '' and "''" or found or other
    end
  end

  if answer == 1 then
    for i = first, last do
      redis.call('PEXPIRE', KEYS[i], ttl)
    end
    for i = last + 1, last_fence do
      redis.call('PEXPIRE', KEYS[i], life)
    end
  else
    answer = failure or string.sub(other, 1, 128)
  end
  answers[#answers + 1] = answer
  first = last_fence + 1
end

return answers
