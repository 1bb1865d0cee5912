"""Whether the quorum is healthy and safe, as the masters' own answers show.

`examine` asks one master, `survey` asks all. `facts` holds their answers. `verdict` judges the facts (pure). `result`
is the answer: see `redlock.Health`.
"""
