"""What this library runs on. On Windows everything can be imported, and no lock is taken."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

WINDOWS: Final = sys.platform == "win32"
SENTENCE: Final = (
    "redlock-quorum takes no locks on Windows: its clock, its sockets and its signals are those of POSIX; run the "
    "program in WSL or in a container, and its unit tests with redlock.testing.FixedMasters, which work here"
)
# Addresses of masters with a fixed answer. They are in this process, and are no locks.
fixed: set[object] = set()


def check(masters: Iterable[object]) -> None:
    """Raise `ConfigurationError` on Windows, unless all of these addresses are `fixed`."""
    if WINDOWS and not fixed.issuperset(masters):
        raise ConfigurationError(SENTENCE)


def refuse() -> None:
    """Raise `ConfigurationError` on Windows."""
    check([None])
