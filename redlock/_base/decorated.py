"""Functions with a lock as a decorator: checks of the function, and its name in errors."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

from redlock import options
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable


def shown(function: object) -> str:
    """The name of ``function`` for the text of an error."""
    return getattr(function, "__qualname__", None) or options.shown(function)


def check(function: object) -> None:
    """Raise ConfigurationError if ``function`` cannot be called, or not in the way in which the lock will call it."""
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
    is_object = not (inspect.isroutine(function) or inspect.isclass(function))
    return is_object and kind(type(function).__call__)
