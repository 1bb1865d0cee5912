"""Random delays, as tenacity computes them (R25), and where all chance comes from.  No other file imports tenacity."""

from __future__ import annotations

from random import SystemRandom
from typing import TYPE_CHECKING, Final, cast

from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_base, wait_exponential

if TYPE_CHECKING:
    from collections.abc import Callable

# Not the application's own `random`: processes with one seed would try at the same moments and split the votes.
chance: Final = SystemRandom()


class FullJitter(wait_exponential):
    """A random delay from ``min`` up to an exponential one.  Clients that were refused together try again apart."""

    def __call__(self, retry_state: RetryCallState) -> float:
        return chance.uniform(self.min, super().__call__(retry_state))


# Between attempts on a held lock.  The first are soon, for most critical sections are short, and random already.
BETWEEN_ATTEMPTS: wait_base = FullJitter(multiplier=0.025, max=0.5, min=0.002)
# Between looks at a name that is to become free.  A message wakes the waiter; a lost one costs such a pause.
BETWEEN_LOOKS: wait_base = FullJitter(multiplier=0.5, max=5.0, min=0.1)
# Between connection attempts: a master that is back should be connected within about a second.
BETWEEN_CONNECTIONS: wait_base = FullJitter(multiplier=0.1, max=1.0, min=0.05)
# Between attempts to connect beside a silent connection: if the master hangs, it finds each of them when it goes on.
BESIDE_A_SILENT_ONE: wait_base = FullJitter(multiplier=1.0, max=10.0, min=1.0)
# Between two terms of a leader whose body raised.  A defect stays for a while, and until then others may lead.
BETWEEN_TERMS: wait_base = FullJitter(multiplier=0.5, max=30.0, min=0.1)


def delay(strategy: wait_base | Callable[[RetryCallState], float], failed: int) -> float:
    """Seconds to wait after ``failed`` attempts, 1 or more.  Of the state a wait object reads the number alone."""
    state = RetryCallState(cast("Retrying", None), None, (), {})
    state.attempt_number = failed
    return max(0.0, float(strategy(state)))
