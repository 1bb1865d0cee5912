"""The chaos harness: real clients, real servers, real faults, and a judge who only reads what was written.

    __main__              the command line: run · check · export · explore · prove · ci · list
    run  ci  catalogue    one run · the suite · what there is
    launch                starts sessions, has them judged, says whether that was to be expected
    session               one run: from the first server to the merged history
    plan                  who plans: pure, from a seed
    nemesis               who breaks, and heals
    growth                whether one master more may come, as redlock-check --plan says
    cast  clients/        who works: processes · what each of them does
    backends/             where they live, and how links are cut
    databases             PostgreSQL, for transactions
    pulse                 what the machine did, which is not what the lock did
    scenarios  variants   what is done, and what must hold · locks that are broken on purpose
    settings  faults  names  control
    check                 judges a recorded history
    report/               timeline.html and verdict.json
    summary               what happened, in figures
    judge/                what held: pure, no clock, no file
    history               the format: read, write, merge
    specification         the lock as a step relation: which steps the rules allow
    export                a lock as a register, for checkers of others
    explore  scopes       every step out of every state of small worlds
    prove  proof/         promises for any number of masters, by a solver
    mutants               rules that are broken on purpose

Four roles are kept apart: who plans, who breaks, who works, who judges.  The judge knows nothing of the
other three; docs/chaos-history.md has the format, for histories of others as well.

In the repository this package is ``chaos``, in the wheel it is `redlock.chaos`: all imports in here are relative.
"""

from typing import Final

IN_WHEEL: Final = __name__ != "chaos"
# How it is started, as people type it.
PROGRAM: Final = ("redlock-chaos",) if IN_WHEEL else ("python", "-m", "chaos")
NAME: Final = " ".join(PROGRAM)
