-- What extend.lua does for one lease, for many (R12, R20): set the TTL of every name of a lease that its caller
-- still holds, if it holds them all.  One that is not extended changes nothing for the others.
-- It never creates a key: an extension brings nothing back.
-- Where an expiry is confirmed by more than one clock (R35): each extension leaves its stamp on record. --[recorded]
--
-- KEYS  of each lease: its lock keys, then its fence keys (none: fencing is off) --[not recorded]
-- ARGV  life of a fence key in ms, then of each lease: so many lock keys, so many fence keys, token, ttl in ms --[not recorded]
-- KEYS  of each lease: its lock keys, then its fence keys, then its grant keys --[recorded]
-- ARGV  life of a fence key in ms, life of a record in ms, stamp, then of each lease: so many names, token, ttl in ms, its --[recorded]
--       fence ("": not known) --[recorded]
--
-- returns of each lease, in the same order
--         1         extended, and its fence keys live on
--         holder    not all ours: the token of another holder of one, as extend.lua
--         an error  a key has another type: readers have it, for one.  The mark of a writer that waits for readers
--                   holds none (R33)
--                   STALE: a later extension was here, or another lease is on record --[recorded]

-- (owned.lua)
-- (extension.lua) --[recorded]
-- (renewed.lua) --[recorded]

local life, answers, first = ARGV[1], {}, 1
for arg = 2, #ARGV, 4 do --[not recorded]
  local n, fences, token, ttl = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), ARGV[arg + 2], ARGV[arg + 3] --[not recorded]
  local done, keys = false, n + fences --[not recorded]
for arg = 4, #ARGV, 4 do --[recorded]
  local n, token, ttl, fence = tonumber(ARGV[arg]), ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3] --[recorded]
  local done, fences, keys = n == 1 and renewed(KEYS[first], KEYS[first + 1], KEYS[first + 2], token, ttl, fence), n, 3 * n --[recorded]
  local answer, last = 1, first + n - 1
  if not done then
    local ours, other, failure = owned(token, first, last)
    local records, stale = {} --[recorded]
    if ours then --[recorded]
      records, stale = extensions(last + fences + 1, n, token, ttl, ARGV[3], fence) --[recorded]
    end --[recorded]
    if not ours then
      failure = failure or other == 'shared:' and redis.error_reply('WRONGTYPE readers have it')
      answer = failure or string.sub(other, 1, 128)
    elseif stale then --[recorded]
      answer = stale --[recorded]
    else
      for i = first, last do
        redis.call('PEXPIRE', KEYS[i], ttl)
        redis.call('SET', KEYS[i + 2 * n], records[i - first + 1], 'PX', ARGV[2]) --[recorded]
      end
      for i = last + 1, last + fences do
        redis.call('PEXPIRE', KEYS[i], life)
      end
    end
  end
  answers[#answers + 1] = answer
  first = first + keys
end
return answers
