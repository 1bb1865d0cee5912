-- What acquire.lua does, for a waiter in line (R42): nobody is granted a name here before the one with the lowest ticket.
--
-- KEYS  those of acquire.lua, then their n ticket keys
-- ARGV  those of acquire.lua, the proposed fence with a zero in front (17 digits); then the token of the waiter, which may
--       have no ticket yet
--
-- returns as acquire.lua; or {0, "0", "ticket:" and the token of the waiter whose turn it is, the ms for which it stands
--         there}; or, if somebody has that name, its holder.  The fence is written as it was proposed: with a zero in front

-- (turn.lua)

-- (acquire.lua)
