"""Says what to write in place of an old call."""

from __future__ import annotations

import warnings


def write(line: str, *, for_: str) -> None:
    """Warn the caller of the caller.  ``for_``: what it called.

    The text does not depend on names of locks: Python shows one text of one line once.
    """
    warnings.warn(f"{for_} is there for the way over. Write instead:  {line}", DeprecationWarning, stacklevel=3)
