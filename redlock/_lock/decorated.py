"""Functions with a lock as a decorator: checks of the function, its name in errors, and what is done if it is busy."""

from __future__ import annotations

import functools
import inspect
import math
from typing import TYPE_CHECKING, Any

from redlock import options
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def shown(function: object) -> str:
    """The name of ``function`` for the text of an error."""
    return getattr(function, "__qualname__", None) or options.shown(function)


def check(function: object) -> None:
    """Raise ConfigurationError if ``function`` cannot be called in the way in which the lock will call it."""
    if isinstance(function, (classmethod, staticmethod)):
        kind = type(function).__name__
        raise ConfigurationError(
            f"{shown(function)} is a {kind} already: write the lock below @{kind}, right above the function"
        )
    if not callable(function):
        raise ConfigurationError(f"{options.shown(function)} cannot be called: a lock is put around a function")


def runs_as(function: object, kind: Callable[[object], bool]) -> bool:
    """Whether a call of ``function`` runs code of that ``kind``, which is a predicate of `inspect`."""
    while isinstance(function, functools.partial):
        function = function.func
    if kind(function):
        return True
    return not (inspect.isroutine(function) or inspect.isclass(function)) and kind(type(function).__call__)


def check_called(function: object, right: str) -> None:
    """Raise ConfigurationError unless the body of ``function`` runs while it is called.  Coroutines need ``right``."""
    check(function)
    for kind, is_one in (
        (f"a coroutine function, which takes {right}", inspect.iscoroutinefunction),
        ("a generator function", inspect.isgeneratorfunction),
        ("an asynchronous generator function", inspect.isasyncgenfunction),
    ):
        if runs_as(function, is_one):
            raise ConfigurationError(f"{shown(function)} is {kind}: its body would run after the release")


def check_awaited(function: object) -> None:
    """Check that ``function`` is awaited as a whole.  Raises ConfigurationError."""
    check(function)
    if not runs_as(function, inspect.iscoroutinefunction):
        raise ConfigurationError(
            f"{shown(function)} is no coroutine function: "
            "only what is awaited as a whole can run under an AsyncMultiLock"
        )


def check_told(option: str, function: object, takes: str, holder: str) -> None:
    """Raise ConfigurationError if ``function`` cannot be called when something happens.  A thread runs no coroutine."""
    if function is None:
        return
    if not callable(function):
        raise ConfigurationError(
            f"{option}={options.shown(function)}: allowed is a function that takes {takes}, or None"
        )
    if holder == "thread" and runs_as(function, inspect.iscoroutinefunction):
        raise ConfigurationError(
            f"{option}={shown(function)} is a coroutine function, which a thread does not run: allowed is a plain "
            "function here, and both with AsyncMasters"
        )


def lock_options(on_busy: object, busy: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a lock for each call (R30), with the timeout of ``on_busy``.  Raises ConfigurationError."""
    if on_busy not in ("wait", "raise", "skip"):
        raise ConfigurationError(f"on_busy={options.shown(on_busy)}: allowed are 'wait', 'raise' and 'skip'")
    if busy is not None and on_busy != "skip":
        raise ConfigurationError(
            f"busy={options.shown(busy)} with on_busy={on_busy!r}: it is what a call returns with on_busy='skip'"
        )
    if on_busy == "wait":
        return dict(given)
    timeout = given.get("timeout")
    if timeout is not None and math.isinf(options.timeout("timeout", timeout)):
        raise ConfigurationError(
            f"timeout={options.shown(timeout)} with on_busy={on_busy!r}: that is never busy; to wait for ever, "
            "on_busy='wait'"
        )
    return {**given, "timeout": 0.0 if timeout is None else timeout}
