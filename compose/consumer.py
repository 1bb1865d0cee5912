"""A service that must not run twice at a time, and knows nothing of locks: `redlock-run --service` starts it.

python consumer.py work FILE      writes its term and its place, ten times a second, until it is ended
python consumer.py audit FILE     one line for each term; exit 1 if two have worked at the same time
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from pathlib import Path

PAUSE = 0.1


def work(path: Path) -> None:
    entry = f"{os.environ['REDLOCK_FENCE']} {socket.gethostname()}\n"
    with path.open("a", encoding="utf-8", buffering=1) as file:
        while True:
            file.write(entry)
            time.sleep(PAUSE)


def audit(path: Path) -> int:
    """Entries stand in the order of time: one that is not in order was written beside another leader's."""
    entries = [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    runs = [(int(fence), place, len([*some])) for (fence, place), some in itertools.groupby(entries)]
    for fence, place, count in runs:
        print(f"term {fence}: {place}, {count} entries")
    in_order = all(one[0] < other[0] for one, other in itertools.pairwise(runs))
    print("one at a time" if in_order else "MIXED: two have worked at the same time")
    return int(not in_order)


def main() -> int:
    match sys.argv[1:]:
        case ["work", path]:
            work(Path(path))
            return 0
        case ["audit", path]:
            return audit(Path(path))
    print("usage: consumer.py work|audit FILE", file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main())
