-- The fences of redlock (R39): the greatest one that has begun a transaction, for each name.
-- No row may be deleted while its lock is in use.
DO $$
BEGIN
    CREATE TABLE IF NOT EXISTS redlock_fence (
        name      TEXT COLLATE "C" PRIMARY KEY,
        fence     BIGINT NOT NULL,
        owner     TEXT NOT NULL,                        -- who raised it, for people
        raised_at TIMESTAMP WITH TIME ZONE NOT NULL     -- when, for people
    );
EXCEPTION
    -- Another session has made it in the same moment: IF NOT EXISTS does not see what is not committed yet.
    WHEN unique_violation OR duplicate_table OR duplicate_object THEN NULL;
END
$$;
