"""``redlock-run --service``: the command runs where the leader is, one term after the other (R31).

Each term has masters and a `Job` of its own. A `Job` forks, which is safe only without other threads, so the masters
of the term before are closed first. By then the lock has been given back.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from redlock._cli.pause import pause

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

ALWAYS, ON_FAILURE, NEVER = RESTART = ("always", "on-failure", "never")
_FIRST, _LONGEST = 0.5, 30.0  # seconds: the limits of the first pause and of all later ones
_LOOK_AGAIN = 0.05


class Ending(NamedTuple):
    """How a term ended.

    ``over``: before its command had ended by itself. The lease was lost, or had lasted for ``--max-hold``.
    ``asked``: a signal asked redlock-run to end. ``seconds``: how long the command ran.
    """

    code: int
    over: bool
    asked: bool
    seconds: float


class Restarts:
    """When the next campaign begins."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._short = 0  # commands that ended soon, one after the other

    def pause(self, ending: Ending) -> float | None:
        """Seconds until the next campaign. None: there is none.

        A command that ends soon, whatever its exit code, would make an election of each start. So the pauses grow, and
        others lead until then. They are random, so that replicas which fail alike do not try at the same moments.
        """
        if ending.asked:
            return None
        if ending.over:
            return 0.0
        if self._policy == NEVER or (self._policy == ON_FAILURE and ending.code == 0):
            return None
        if ending.seconds > _LONGEST:
            self._short = 0
        limit = min(_LONGEST, _FIRST * 2**self._short)
        self._short += limit < _LONGEST
        return random.uniform(limit / 2, limit)  # noqa: S311 - no secret


def serve(
    term: Callable[[], Ending],
    policy: str,
    say: Callable[[str], object],
    answering: Callable[[], AbstractContextManager[int]] = lambda: nullcontext(0),
) -> int:
    """Call ``term`` for one term after the other. Returns the exit code of the last one.

    ``answering``: what goes on between two terms, in so many threads.

    A signal that arrives between two terms raises here what its handler raises.
    """
    restarts = Restarts(policy)
    threads = threading.active_count()  # a debugger may have started threads
    while True:
        ending = term()
        seconds = restarts.pause(ending)
        if seconds is None:
            return ending.code
        with answering() as answer:
            if seconds:
                say(f"the next campaign begins in {seconds:.1f} s")
                pause(seconds)
            # A thread that connects may be in the resolver, and `Masters.close` does not wait for that.
            while threading.active_count() > threads + answer:
                time.sleep(_LOOK_AGAIN)
