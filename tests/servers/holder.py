"""A process that takes and gives back a lock on command, with a wall clock of its own.

    python -m tests.servers.holder WORLD OFFSET_SECONDS URL ...

Reads ``acquire`` and ``release`` from standard input, answers with the fence, ``none`` or ``ok``.
"""

from __future__ import annotations

import sys
import time

from tests.servers import worlds


def main() -> None:
    name, offset, *urls = sys.argv[1:]
    true = time.time_ns
    time.time_ns = lambda: true() + int(float(offset) * 1e9)
    with worlds.opened(name) as world, world.Masters(urls, restart_guard=False, node_timeout=0.2) as masters:
        lock = masters.lock("job", ttl=10)
        for line in sys.stdin:
            match line.strip():
                case "acquire":
                    lease = lock.acquire(timeout=60)
                    print("none" if lease is None else lease.fence, flush=True)
                case "release":
                    lock.release()
                    print("ok", flush=True)


if __name__ == "__main__":
    main()
