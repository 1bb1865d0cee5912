"""Unknown keyword arguments: the error says what they are called here.

A name like ``timeout`` means something else in other libraries, so Python's own text is no help.  A reader to whom
``blocking_timeout`` is unexpected tries ``timeout``, which is right, and then ``expire``, which is called ``ttl``.

A function that wants such an error takes ``**unknown: Unpack[NoOptions]``, which type checkers read as nothing at all.
"""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from redlock._lock.typed import LockOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

F = TypeVar("F", bound="Callable[..., object]")

# The two times of a lock in redis-py, pottery, redlock-py, aioredlock, node-redlock and Redisson, and of SET.
_TIMES = frozenset(
    (
        *("acquire_timeout", "blocking_timeout", "context_manager_timeout", "max_wait", "wait", "wait_time"),
        *("auto_release_time", "duration", "ex", "expire", "expires", "expiry", "lease", "lease_time", "lock_timeout"),
        *("nx", "px", "timeout_ms", "ttl_ms", "wait_timeout", "xx"),
    )
)
_PAUSES = frozenset(("interval", "poll_interval", "retry_count", "retry_delay", "retry_times", "sleep"))


def hide_unknown(function: F) -> F:
    """``function``, with a signature that does not show ``**unknown``."""
    signature = inspect.signature(function)
    known = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=known)  # type: ignore[attr-defined]
    return function


def shows_options_of(base: Callable[..., object]) -> Callable[[F], F]:
    """A decorator: where the signature of a function has ``**of_lock``, show the options of ``base``."""
    parameters = inspect.signature(base).parameters

    def decorate(function: F) -> F:
        own = dict(inspect.signature(function).parameters)
        known = [own.pop(name, one) for name, one in parameters.items()]
        known += [one for one in own.values() if one.kind is not one.VAR_KEYWORD]
        function.__signature__ = inspect.Signature(known)  # type: ignore[attr-defined]
        return function

    return decorate


def unexpected(called: str, unknown: Collection[str], function: Callable[..., object]) -> TypeError:
    """The error of a call of ``function`` with keyword arguments that it does not have."""
    name = next(iter(unknown))
    known = [one for one in inspect.signature(function).parameters if one != "self"]
    return TypeError(f"{called}() got an unexpected keyword argument {name!r}{_hint(name, known)}")


def _hint(name: str, known: Collection[str]) -> str:
    if "ttl" not in known and name in LockOptions.__annotations__:
        return f": {name}= is an option of the lock"
    if name in _TIMES:
        where = "" if "ttl" in known else ", an option of the lock,"
        return (
            f": timeout= is for how many seconds to wait for the lock, "
            f"and ttl={where} for how many seconds masters remember a holder that does not renew"
        )
    if name in _PAUSES:
        return ": the pause between attempts is retry=, an option of the lock, a wait strategy of tenacity"
    close = get_close_matches(name, known, 1)
    return f": did you mean {close[0]}=?" if close else ""
