"""Django: the masters from its settings, and management commands that run once at a time.  Needs the extra ``django``.

::

    INSTALLED_APPS = [..., "redlock.adapters.django"]       # checks the settings
    REDLOCK = {
        "MASTERS": ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"],
        "OPTIONS": {"timeout": 5},                          # those of Masters: no request waits longer
    }
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from redlock import ConfigurationError, LockLost, LockReleased, LockUnavailable, Masters, QuorumUnreachable
from redlock.fenced import ReleasedBeforeCommit

try:
    from django import conf
    from django.core import checks
    from django.core.management.base import CommandError
    from django.core.signals import setting_changed
    from django.db import connections
except ImportError as error:
    raise ImportError("redlock.adapters.django needs Django: pip install django", name="django") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from redlock import Event

__all__ = ["masters", "one_at_a_time"]

_made: dict[None, Masters] = {}
_LIMITS: Any = {"max_ttl": 1e9, "fence_ttl": 1e9, "node_timeout": 1e-6, "drift_factor": 0.0}  # the widest


def masters() -> Masters:
    """The `Masters` of ``settings.REDLOCK``: one object, which all threads and forked children may use.

    The first call makes it; nothing is sent before the first operation.

    Raises:
        ConfigurationError: the setting is missing, or a value in it cannot be right.  No password is in the text.
    """
    return _made.get(None) or _made.setdefault(None, _from_settings())  # two at once get the same one


def one_at_a_time(name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the ``handle`` of a management command, which then runs while it holds a lock::

        class Command(BaseCommand):
            @one_at_a_time(max_hold=3600)
            def handle(self, *args, lease, **options):
                ...

    ``handle`` is given the `Lease`: its fence, and `Lease.ensure` between steps.  While it runs, SIGTERM raises
    `SystemExit`, so that the lock is given back at once; unless the program has a handler for it already.

    Args:
        name: of the lock.  None: ``command:`` and the module of the command.
        options: as of `Masters.lock`.  ``timeout``: seconds to wait for the lock, or what the settings say; 0 for
            a crontab, which starts it again anyway.

    What goes wrong with the lock is a ``CommandError`` with the exit code of ``redlock-run``: 75, it is busy;
    69, too few masters answered; 70, it was lost while the command ran.

    Raises:
        ConfigurationError: the name or an option cannot be right, whatever the settings say.
    """
    with Masters(["redis://of-the-settings"], **_LIMITS) as any_masters:  # only to check options
        any_masters.lock("of its module" if name is None else name, **options)

    def decorate(handle: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(handle):
            raise ConfigurationError(
                f"{handle!r:.80} cannot be called: one_at_a_time(...) is put above a handle method"
            )
        lock_name = f"command:{handle.__module__.rpartition('.')[2]}" if name is None else name

        @functools.wraps(handle)
        def locked(self: Any, *args: Any, **given: Any) -> Any:
            try:
                with _sigterm_exits(), masters().lock(lock_name, **options) as lease:
                    return handle(self, *args, lease=lease, **given)
            except (LockUnavailable, LockLost) as error:
                if error.name != lock_name:  # another lock inside has raised it
                    raise
                raise CommandError(str(error), returncode=_exit_code(error)) from error

        return locked

    return decorate


def _exit_code(error: LockUnavailable | LockLost) -> int:
    if isinstance(error, LockLost):
        return 70
    return 69 if isinstance(error, QuorumUnreachable) else 75


@contextlib.contextmanager
def _sigterm_exits() -> Iterator[None]:
    """Python dies of SIGTERM at once, and would leave the lock to its TTL."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    try:  # from here on: another signal handler may raise at the next line
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _from_settings() -> Masters:
    given = getattr(conf.settings, "REDLOCK", None)
    if not isinstance(given, dict) or "MASTERS" not in given or given.keys() - {"MASTERS", "OPTIONS"}:
        is_now = f"has {_names(given)}" if isinstance(given, dict) else "is not set" if given is None else "is no dict"
        raise ConfigurationError(
            f'settings.REDLOCK {is_now}: it needs "MASTERS", a list or dict of URLs, and may have "OPTIONS"'
        )
    options = given.get("OPTIONS", {})
    allowed = inspect.signature(Masters).parameters.keys() - {"masters"}
    if not isinstance(options, dict) or options.keys() - allowed:
        is_now = f"has {_names(options)}" if isinstance(options, dict) else "is no dict"
        raise ConfigurationError(f"settings.REDLOCK: OPTIONS {is_now}; allowed are {_names(allowed)}")
    try:
        observer = options.get("observer")
        if observer is None or callable(observer):
            options = {**options, "observer": _Observer(observer)}
        return Masters(given["MASTERS"], **options)
    except ConfigurationError as error:
        raise ConfigurationError(f"settings.REDLOCK: {error}") from None


class _Observer:
    """Warns if a lock is given back while a transaction is open in its thread: see `ReleasedBeforeCommit`."""

    def __init__(self, then: Callable[[Event], object] | None) -> None:
        self._then = then

    def __call__(self, event: Event) -> None:
        if isinstance(event, LockReleased):
            for connection in connections.all(initialized_only=True):
                if connection.in_atomic_block and not _of_a_test(connection):
                    ReleasedBeforeCommit.warn(
                        event.name, f"a transaction of the database {connection.alias!r} was open"
                    )
        if self._then is not None:
            self._then(event)


def _of_a_test(connection: Any) -> bool:
    """Whether only the transactions of a ``TestCase`` are open."""
    return all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)


def _names(keys: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, keys))) or "nothing"


def _check(**_: Any) -> list[Any]:
    """For ``manage.py check``, and for every command that checks before it begins."""
    try:
        masters()
    except ConfigurationError as error:
        return [checks.Error(str(error), id="redlock.E001")]
    return []


def _changed(setting: str, **_: Any) -> None:
    """A test overrides the settings."""
    if setting == "REDLOCK" and _made:
        _made.pop(None).close()


checks.register(_check)
setting_changed.connect(_changed)
