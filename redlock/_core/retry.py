"""Random delays, as tenacity computes them (R25).  The one importer of tenacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_base, wait_random_exponential

if TYPE_CHECKING:
    from collections.abc import Callable

# Between attempts on a held lock: soon at first, for most critical sections are short, then up to
# half a second.  Random from the bottom up, so that contenders who split the vote part quickly.
BETWEEN_ATTEMPTS: wait_base = wait_random_exponential(multiplier=0.025, max=0.5, min=0.002)

# Between connection attempts: a master that is back is wanted back within about a second.
BETWEEN_CONNECTIONS: wait_base = wait_random_exponential(multiplier=0.1, max=1.0, min=0.05)


def delay(strategy: wait_base | Callable[[RetryCallState], float], failed: int) -> float:
    """Seconds to wait after ``failed`` attempts, 1 or more."""
    # A wait object looks at the number of the attempt; the rest of the state is never used by us.
    state = RetryCallState(cast("Retrying", None), None, (), {})
    state.attempt_number = failed
    return max(0.0, float(strategy(state)))
