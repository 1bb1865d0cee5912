"""Fenced transactions in Django (R39).  Needs Django, and ``"redlock.fenced.django"`` in ``INSTALLED_APPS``.

::

    from redlock.adapters.django import masters
    from redlock.fenced.django import fenced

    @transaction.non_atomic_requests        # if ATOMIC_REQUESTS is on
    def pay(request, account):
        with fenced(masters().lock(f"account:{account}", timeout=5)):
            ...

``manage.py migrate`` makes the table of fences.  ``manage.py check`` finds views that use a lock inside of the
transaction of ``ATOMIC_REQUESTS``, where the lock would be free before the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock.fenced._threads import Fenced

if TYPE_CHECKING:
    from redlock import Lease, MultiLock, Term

__all__ = ["fenced"]


def fenced(lock: MultiLock | Lease | Term, using: str | None = None) -> Fenced:
    """Run a transaction under ``lock``, as `redlock.fenced.fenced` does; ``atomic(durable=True)`` is inside.

    Args:
        lock: a lock or slots, or a `Lease` or a `Term` that is held already.
        using: the alias of the database.  None: that to which a router writes the model ``Fence``, else the default.

    In a ``TestCase`` of Django the commit ends a savepoint.

    Raises:
        ConfigurationError: when it is entered: a transaction is open on that database, as inside of ``atomic()`` and
            of ``ATOMIC_REQUESTS``.
    """
    from redlock.fenced.django._store import DjangoStore, alias_of  # noqa: PLC0415 - it needs settings

    return Fenced(lock, DjangoStore(alias_of(using)), _here)


def _here(function: Any, *arguments: object) -> Any:
    return function(*arguments)
