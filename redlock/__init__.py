"""A distributed lock on a majority of independent Redis masters."""
