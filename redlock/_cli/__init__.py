"""The commands `redlock-check` and `redlock-run`: docs/redlock-check.md, docs/redlock-run.md."""
