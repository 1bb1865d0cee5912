"""At most k holders, by k locks (R32)."""
