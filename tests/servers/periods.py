"""A machine whose cron starts a short job in every period, by a clock of its own.

    python -m tests.servers.periods AHEAD PERIOD HOLD_AT_LEAST GRACE FIRST COUNT URL ...

``AHEAD``: so many seconds its clock is ahead.  It starts the job in the periods from ``FIRST`` on, and prints the number
of each in which it has run.  A start that is later than ``GRACE`` it drops, and looks for that under the lock.
"""

from __future__ import annotations

import sys
import time

import redlock


def main() -> None:
    ahead, period, least, grace = map(float, sys.argv[1:5])
    first, count = map(int, sys.argv[5:7])
    with redlock.Masters(sys.argv[7:], restart_guard=False) as masters:
        lock = masters.lock("job", ttl=max(least, 1.0), timeout=0, hold_at_least=least)
        for number in range(first, first + count):
            due = number * period
            time.sleep(max(0.0, due - (time.time() + ahead)))
            lease = lock.acquire()
            if lease is None:
                continue
            if time.time() + ahead - due < grace:
                time.sleep(0.05)
                print(number, flush=True)
            lock.release()


if __name__ == "__main__":
    main()
