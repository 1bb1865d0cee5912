-- The fences of redlock (R39): the greatest one that has begun a transaction, for each name.
-- No row may be deleted while its lock is in use.
CREATE TABLE IF NOT EXISTS redlock_fence (
    name      TEXT NOT NULL PRIMARY KEY,
    fence     INTEGER NOT NULL,
    owner     TEXT NOT NULL,        -- who raised it, for people
    raised_at TEXT NOT NULL         -- when, for people; UTC
);
