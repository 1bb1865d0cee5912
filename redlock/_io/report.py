"""Reports what happens, to the log and to the observer if there is one.  This file imports nothing of `_io`."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, TypeAlias

from redlock.errors import printable

if TYPE_CHECKING:
    from redlock._core.protocols import Observing

# Log records, each with its level, and the name and the fields of the event for the observer, if there is one.
Reports: TypeAlias = list[tuple[int, str, tuple[Any, ...]]]
_log = logging.getLogger("redlock")


def report(reports: Reports, observer: Observing | None) -> None:
    """Pass ``reports`` to the log and the observer.  Never call this with a mutex held: both may be slow."""
    for level, text, event in reports:
        with contextlib.suppress(Exception):  # from a logging handler, as below
            _log.log(level, "%s", printable(text))
        if observer is not None and event:
            observer.tell(*event)


def report_failure(text: str, error: BaseException | None = None) -> None:
    """Log an exception that no caller can catch: ``error``, or the one that is being handled."""
    with contextlib.suppress(Exception):  # from a logging handler: it must not stop our caller
        _log.error("%s", text, exc_info=error or True)
