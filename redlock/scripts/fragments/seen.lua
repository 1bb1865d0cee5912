-- (holder.lua)
-- (clock.lua)

-- What there is to see at the lock `key`: {holder, pttl, fence, listeners if they are `counted`, readers...}, or an error.
-- The holder is "" and pttl -2 if it is free; -1: a key without expiry.  "shared:" is followed by up to `most` tokens
-- of readers, and lasts until the last of them ends (R33).  Listeners: -1 where it is not permitted to count them (R40).
-- Of a value longer than our tokens, the first 128 bytes.
local function seen(key, fence, most, counted)
  local found, left, wrong = holder(key)
  local answer = {string.sub(found or '', 1, 128), left, fence}
  if counted then
    answer[4] = tonumber(redis.pcall('PUBSUB', 'NUMSUB', key .. ':released')[2]) or -1
  end
  if found == 'shared:' then
    local readers = redis.pcall('ZRANGE', key, string.format('(%.0f', clock()), '+inf', 'BYSCORE', 'LIMIT', 0, most)
    for _, reader in ipairs(readers) do
      answer[#answer + 1] = reader
    end
  end
  return wrong or answer
end
