-- The fences of redlock (R39): the greatest one that has begun a transaction, for each name.
-- No row may be deleted while its lock is in use.
CREATE TABLE IF NOT EXISTS redlock_fence (
    name      VARBINARY(512) NOT NULL PRIMARY KEY,  -- bytes: a collation would take two names for one
    fence     BIGINT NOT NULL,
    owner     VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,  -- who raised it, for people
    raised_at DATETIME(6) NOT NULL                  -- when, for people; UTC
) ENGINE = InnoDB;
