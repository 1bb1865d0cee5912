"""Takes a lock, stands still, and tries it once when it is woken: a process that was frozen, or a night without work.

usage: python -m tests.servers.sleeper WORLD URL ...
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from tests.servers import worlds
from tests.servers.look import all_up, eventually

if TYPE_CHECKING:
    from collections.abc import Callable


def try_once(lock: Any) -> str:
    try:
        lease = lock.acquire(timeout=0)
    except Exception as error:  # noqa: BLE001 - it is what the test looks at
        return f"{type(error).__name__}: {' / '.join(str(error).splitlines())}"
    lock.release()
    return "granted" if lease else "held"


def renew(lock: Any) -> str:
    """The extension meets the connections that have died."""
    try:
        return f"extended, valid: {lock.extend().valid}"
    except Exception as error:  # noqa: BLE001 - it is what the test looks at
        return f"{type(error).__name__}: {' / '.join(str(error).splitlines())}"


def main(name: str, what: str, *urls: str) -> None:
    with worlds.opened(name) as world, world.Masters(urls, restart_guard=False, node_timeout=2) as masters:
        eventually(lambda: all_up(masters))
        lock = masters.lock("job", ttl=30, auto_extend=False)
        does: Callable[[Any], str] = try_once
        if what == "slots":
            lock = masters.slots("job", limit=3, ttl=30, auto_extend=False)
        elif what == "extend":
            lock.acquire()
            does = renew
        print("stands still", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        print(f"then: {does(lock)}", flush=True)


main(*sys.argv[1:])
