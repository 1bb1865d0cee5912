"""Is the quorum healthy, and is it safe?  What each master says of itself, and what follows from it.

`facts` is what was found, `verdict` what it means (pure), `examine` and `survey` do the asking,
`records` is what comes out: see `redlock.Health`.
"""
