# Made from redlock/_lock/synchronized_async.py by tools/unasync.py: change that file, then run `make faces`.
"""Decorated functions: each call holds a lock that is named by its arguments (R30), for threads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redlock._lock import decorated
from redlock._lock.naming import names_for
from redlock.errors import NotAcquired

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redlock._lock.masters_threads import Masters
    from redlock._lock.naming import Naming

P = ParamSpec("P")
R = TypeVar("R")


def decorator(
    masters: Masters, naming: Naming, on_busy: str, busy: Any, given: Mapping[str, Any]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """What `Masters.synchronized` returns.  Raises ConfigurationError."""
    options = decorated.lock_options(on_busy, busy, given)
    masters.lock("any", **options)  # checks the options

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        decorated.check_called(function, "AsyncMasters")
        names = names_for(naming, function)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            lock = masters.lock(names(args, kwargs), **options)
            entered = False
            try:
                with lock:
                    entered = True
                    return function(*args, **kwargs)
            except NotAcquired:
                if entered or on_busy != "skip":  # entered: the error comes from the body
                    raise
                skipped: R = busy
                return skipped

        return locked

    return decorate
