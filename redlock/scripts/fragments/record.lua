-- What a master has on record of who was granted a name (R35).
--
-- A grant key is "MARK TTL FENCE TOKEN": TOKEN was granted the name here with this fence, and has not released it.
-- MARK: "0", or the mark of its last extension here; "r" and something random if its extensions have no common order.
-- TTL: in ms, as it was asked for.  It stays when the lock key goes.  Where a lock key is a token's, the record is that
-- token's, or there is none.

-- The four of `key`; nil if there is none.  A value that is no record has an owner all the same.
local function recorded(key)
  local found = redis.pcall('GET', key)
  if found then
    local stamp, ttl, fence, token = string.match(type(found) == 'string' and found or '', '^(%S+) (%d+) (%d+) (.*)$')
    if stamp then
      return stamp, ttl, fence, token
    end
    return '?', '0', '9007199254740991', ''
  end
end
