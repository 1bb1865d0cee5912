"""The commands `redlock-check` and `redlock-run`. See docs/redlock-check.md and docs/redlock-run.md."""
