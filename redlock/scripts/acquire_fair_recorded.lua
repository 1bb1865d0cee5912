-- What acquire_recorded.lua does, for a waiter in line (R35, R42).
--
-- KEYS  those of acquire_recorded.lua, then their n ticket keys
-- ARGV  those of acquire_recorded.lua, the proposed fence with a zero in front (17 digits); then the token of the waiter
--
-- returns as acquire_recorded.lua; or as acquire_fair.lua where it is not the turn of the waiter

-- (turn.lua)

-- (acquire_recorded.lua)
