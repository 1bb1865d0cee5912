"""Finds views that use a lock inside of the transaction that ``ATOMIC_REQUESTS`` opens around them.

There the view returns, the lock is given back, and then the transaction commits.  The next holder reads the old row.
The check reads the code of each view: whether a name in it refers to something of redlock. A lock in a function that
the view calls is not found; there `fenced` refuses when it runs.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core import checks
from django.urls import get_resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType


def views_inside_of_transactions(**_: Any) -> list[checks.CheckMessage]:
    """W001 for each view that uses redlock inside of ``ATOMIC_REQUESTS``."""
    aliases = [alias for alias, options in settings.DATABASES.items() if options.get("ATOMIC_REQUESTS")]
    if not aliases or not getattr(settings, "ROOT_URLCONF", None):
        return []
    found: dict[str, None] = {}  # in the order of the patterns
    for view in _views(get_resolver()):
        if not _is_outside(view, aliases) and any(_uses_redlock(function) for function in _functions(view)):
            named = getattr(view, "view_class", view)
            found[f"{named.__module__}.{getattr(named, '__qualname__', named)}"] = None
    return [
        checks.Warning(
            f"{name} uses a lock inside of the transaction of ATOMIC_REQUESTS: the lock is free before the commit",
            hint="decorate it with @transaction.non_atomic_requests, and use redlock.fenced.django.fenced",
            id="redlock.W001",
        )
        for name in found
    ]


def _views(resolver: Any) -> Iterator[Any]:
    for pattern in resolver.url_patterns:
        if hasattr(pattern, "url_patterns"):
            yield from _views(pattern)
        else:
            yield pattern.callback


def _is_outside(view: Any, aliases: list[str]) -> bool:
    """Whether the view has no transaction around it, on any of these databases."""
    outside: set[str] = getattr(view, "_non_atomic_requests", set())
    return all(alias in outside for alias in aliases)


def _functions(view: Any) -> Iterator[Callable[..., Any]]:
    """The functions that a view consists of: itself, or the methods of its class."""
    kind = getattr(view, "view_class", None)
    for function in [view] if kind is None else [one for _, one in inspect.getmembers(kind, inspect.isfunction)]:
        inner = inspect.unwrap(function)
        if inspect.isfunction(inner):
            yield inner


def _uses_redlock(function: Any) -> bool:
    known = function.__globals__
    return any(_home(known[name]) == "redlock" for name in _names(function.__code__) if name in known)


def _names(code: CodeType) -> set[str]:
    """All global names in ``code``, and in the functions inside of it."""
    inner = [_names(constant) for constant in code.co_consts if inspect.iscode(constant)]
    return set(code.co_names).union(*inner)


def _home(value: Any) -> str:
    """The package that ``value`` comes from.  A lazy value stays so: it may need a database, or a request."""
    kind = type(value)  # `isinstance` would ask a lazy one for its class
    name = value.__name__ if issubclass(kind, ModuleType) else getattr(value, "__module__", None) or kind.__module__
    return str(name).partition(".")[0]
