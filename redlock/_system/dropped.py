"""Calls a function when an object is dropped."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_WATCHED: set[weakref.ref[Any]] = set()


def when_dropped(thing: object, function: Callable[..., object], *args: object) -> None:
    """Call ``function`` with ``args`` when ``thing`` is dropped, in any thread, unless Python has stopped all others.

    `weakref.finalize` is not for that.  When Python ends, it goes through all such functions of the program; if
    another thread drops ``thing`` meanwhile, it fails with a traceback, and calls none of those that it should call.
    """

    def dropped(watched: weakref.ref[Any]) -> None:
        _WATCHED.discard(watched)
        if not sys.is_finalizing():
            function(*args)

    _WATCHED.add(weakref.ref(thing, dropped))
