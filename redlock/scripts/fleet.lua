-- Tell this master which masters the caller uses, and learn which other lists are in use (R34).
--
-- KEYS  the hash of lists
-- ARGV  the fingerprint of the caller's list, the caller, what it says, ms for which that counts,
--       how it takes an expiry ("confirmed" or "trusted", R35), and the names of its masters
--
-- The name of a caller that only warns begins with ~: it works also where it has to give way.
--
-- It says "new"; "working": it was recorded, and works; "back": it is not to be recorded; "refused": it gives
-- way, and only asks (on a connection that was given up that may come late, and it works again); "left": it is
-- closed, and what it took may live on, as leases that were handed over do.
--
-- returns {state, list, ...}: -1 this master is full, 0 not recorded, 1 recorded, 2 recorded, as clients
-- that work have this list here (1 if only the caller has, and gives way); then each list that is incompatible with the caller's, after
-- "STATUS LEFT" and a line feed: it counts for so many ms yet.  Last, if clients that work take an expiry in the other
-- way, "confirmed LEFT" or "trusted LEFT".
--
-- A value is "SEEN LIFE CLIENT STATUS", in ms, and the names, each on a line.  The client is * where
-- several have the list.  Status: 1 new, 2 working; not recorded are - refused, and ~ in use.  A list
-- counts for LIFE after SEEN on this master's clock.  No two with the status 1 or 2 are incompatible.
-- The two ways of taking an expiry are fields as well: "SEEN LIFE".

-- (clock.lua)

local now = clock()
local own, who, says, life = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local ours = {}
for i = 6, #ARGV do ours[ARGV[i]] = true end

local function majority(size)
  return math.floor(size / 2) + 1
end

local function compatible(names)
  local size, all = 0, #ARGV - 5
  for name in string.gmatch(names, '[^\n]+') do
    size = size + 1
    if not ours[name] then all = all + 1 end
  end
  return majority(#ARGV - 5) + majority(size) > all
end

local before, answer, blocked, ways = nil, {0}, false, {}
local found = redis.call('HGETALL', KEYS[1])
for i = 1, #found, 2 do
  local seen, lasts, client, status, names = string.match(found[i + 1], '^(%d+) (%d+) (%S+) ([-~12])\n(.+)$')
  local left = seen and tonumber(lasts) - math.abs(now - tonumber(seen)) or -1
  if found[i] == 'confirmed' or found[i] == 'trusted' then
    seen, lasts = string.match(found[i + 1], '^(%d+) (%d+)$')
    left = seen and tonumber(lasts) - math.abs(now - tonumber(seen)) or -1
    ways[found[i]] = left
  end
  if left < 0 then
    redis.call('HDEL', KEYS[1], found[i])
  elseif ways[found[i]] then -- it is no list
  elseif found[i] == own then
    before = {seen = tonumber(seen), lasts = tonumber(lasts), client = client, status = status}
  elseif not compatible(names) then
    answer[#answer + 1] = string.format('%s %.0f\n%s', status, left, names)
    blocked = blocked or status == '1' or status == '2'
  end
end

local other = ARGV[5] == 'confirmed' and 'trusted' or 'confirmed'
if (ways[other] or -1) > 0 then
  answer[#answer + 1] = string.format('%s %.0f', other, ways[other])
end
if (says == 'new' or says == 'working') and (not blocked or string.sub(who, 1, 1) == '~') then
  redis.pcall('HSET', KEYS[1], ARGV[5], string.format('%.0f %.0f', now, math.max(life, ways[ARGV[5]] or 0)))
end

local function write(seen, lasts, client, status)
  local head = string.format('%.0f %.0f %s %s\n', seen, lasts, client, status)
  local written = redis.pcall('HSET', KEYS[1], own, head .. table.concat(ARGV, '\n', 6))
  if type(written) == 'table' then
    if not string.find(written.err, 'OOM', 1, true) then return written end
    answer[1] = -1
  elseif redis.call('PTTL', KEYS[1]) < lasts then
    redis.call('PEXPIRE', KEYS[1], lasts)
  end
  return answer
end

if says == 'left' then -- where others have this list it stays as it is: it is not known when they took a lock
  if before and before.client == who then
    if before.status == '-' or before.status == '~' then
      redis.call('HDEL', KEYS[1], own)
    else -- no lease lasts longer than half of its life
      return write(math.min(before.seen, now - before.lasts / 2), before.lasts, who, before.status)
    end
  end
  return answer
end

local client = before and before.client ~= who and '*' or who
-- a client with a longer max_ttl is counted for its own time, and for no longer because others have its list
local lasts = math.max(life, before and before.lasts - math.abs(now - before.seen) or 0)
local working = before and before.status == '2'
if blocked or says == 'back' or says == 'refused' then
  if client ~= who and (working or before.status == '1' and says ~= 'back') then
    answer[1] = working and 2 or 0 -- others have it: what they recorded stays, and who only asks changes nothing
    return answer
  elseif says == 'refused' and (working or before and before.status == '1') then
    answer[1] = 1 -- it may take it back
    return answer
  end
  local works = string.sub(who, 1, 1) == '~' or client ~= who and before.status == '~'
  return write(now, lasts, client, works and '~' or '-')
end
answer[1] = working and 2 or 1
return write(now, lasts, client, (working or says == 'working') and '2' or '1')
