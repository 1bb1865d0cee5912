"""The chaos harness: real clients, real servers, real faults, and a judge who only reads what was written.

    __main__              the command line: run · check · ci · list
    check                 judges a recorded history
    report/               timeline.html and verdict.json
    summary               what happened, in figures
    judge/                what held: pure, no clock, no file
    history               the format: read, write, merge

Four roles are kept apart: who plans, who breaks, who works, who judges.  The judge knows nothing of the
other three; docs/chaos-history.md has the format, for histories of others as well.
"""
