-- The greatest of the fences at KEYS[first] to KEYS[last], as it is shown; nil, and an error: one of them is none.
-- Third, its number, and fourth, whether others may wait in order for one of the names (R42).
-- 2^53 - 1 is no fence: what is greater is not exact in Lua, and order would be lost silently.
local function greatest(first, last)
  local fence, lined = 0, false
  for i = first, last do
    local stored = redis.pcall('GET', KEYS[i])
    if stored then
      local number = type(stored) == 'string' and string.match(stored, '^%d+$') and tonumber(stored)
      if not number or number >= 9007199254740991 then
        if type(stored) == 'string' then
          stored = string.gsub(string.sub(stored, 1, number and 20 or 8), '[^ -~]', '?')
        elseif string.find(stored.err, 'WRONGTYPE', 1, true) then
          stored = 'a value of another type'
        else
          return nil, stored
        end
        return nil, redis.error_reply('BADFENCE ' .. KEYS[i] .. ' does not hold a fencing token but ' .. stored)
      end
      fence, lined = number > fence and number or fence, lined or #stored == 17
    end
  end
  return string.format('%.0f', fence), nil, fence, lined
end
