"""What a holder sees of its lease; threads and asyncio share it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from redlock import options
from redlock._core.tokens import owner_of
from redlock.errors import ConfigurationError, LockLost, NotHeld, Vote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._core.lease import LeaseState


class LeaseBase:
    """A lock that is held until `valid_until`, as far as this process can know.

    This is a promise about time, not about the resource.  After a long pause the holder may act on what already
    belongs to the next holder.  Its next check of the lease says so, but a check is not a barrier.  The `fence` is
    one: pass it with each write, and let the store refuse smaller ones.
    """

    __slots__ = ("__weakref__", "_state")

    def __init__(self, state: LeaseState) -> None:
        self._state = state

    @property
    def name(self) -> str:
        """The name of the lock; several names are joined by ", "."""
        return self._state.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which they were given."""
        return self._state.names

    @property
    def slot(self) -> int | None:
        """The number of its slot in the group, from 0 on; None for a lock (R32).  `name` is the name of the slot."""
        return self._state.slot

    @property
    def token(self) -> str:
        """The value of the keys on the masters, random digits with the owner behind them.  It orders nothing."""
        return self._state.token

    @property
    def owner(self) -> str:
        """The name of the holder, as all clients read it in the token; "" if it has none (R27)."""
        return owner_of(self._state.token)

    @property
    def shared(self) -> bool:
        """Whether other readers may hold the lock as well (R33).  After `downgrade` it is True, even if that failed."""
        return self._state.mode.shared

    @property
    def fence(self) -> int | None:
        """The fencing token, greater than the tokens of all earlier grants, of readers, too; None without fencing."""
        return self._state.fence

    @property
    def ttl(self) -> float:
        """Seconds; the TTL of the last acquire or extension that succeeded."""
        return self._state.ttl

    @property
    def valid_until(self) -> float:
        """When it ends, in seconds on the clock of rule R5, which goes on while the machine sleeps."""
        return self._state.valid_until

    @property
    def votes(self) -> tuple[Vote, ...]:
        """What each master said in the last round that succeeded."""
        return self._state.votes

    def remaining(self) -> float:
        """Seconds until this lease ends; 0 when it is not valid any more.  No I/O."""
        return self._state.remaining()

    @property
    def valid(self) -> bool:
        """Whether no other client can hold the lock now.  No I/O.  Also right after a pause of any length."""
        return self._state.remaining() > 0

    @property
    def lost(self) -> bool:
        """Whether it ended without being released.  False after a release, and in a forked child (C8)."""
        return self._state.lost

    def ensure(self, at_least: float = 0.0) -> None:
        """Raise `LockLost` unless more than `at_least` seconds remain.

        It also raises for a lease that is valid for less than that; such a lease can be released.  Call it right
        before a step that cannot be undone.  It does not protect from a pause before that step; the fencing token does.
        """
        self._state.ensure(options.patience("at_least", at_least, "a number of seconds"))

    def loss(self) -> LockLost:
        """The error that says why this lease ended; if it has not, its text says so."""
        return self._state.loss()

    def hand_over(self) -> str:
        """End this hold without a release: another process goes on with the lease (C11).  No I/O.

        From now on it is not renewed, released or reported here.  The lease is neither valid nor lost, and the end
        of its ``with`` does nothing.  Returns a short text, for a message or a queue.  The other process gives that to
        `Masters.resume`.  If it does not get there, the names are free after the TTL and the guard.

        Raises:
            NotHeld: the caller does not hold it, or the lock object that acquired it is gone.
            LockLost: the lease had ended.
            RedlockError: it was entered more than once: the outer ``with`` needs it.  Or it belongs to a term.  Or a
                finalizer or a signal handler has interrupted this thread in the middle of its masters.
        """
        text: str = self._lock()._hand_over(self._state)  # noqa: SLF001 - a lease is a face of its lock
        return text

    def _lock(self) -> Any:
        """The lock through which it is held.  Raises LockLost or NotHeld."""
        for hold in self._state.holds:
            lock = hold.through()
            if lock is not None:
                return lock
        self._state.ensure()
        raise NotHeld(f"the lock object that acquired {self._state.shown} is gone: keep it as well", name=self.name)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied or pickled, it ends here: pass on what hand_over() returns")

    def __repr__(self) -> str:
        return repr(self._state)


class Handed(NamedTuple):
    """All that another process needs to go on with a lease (R46).  The names come first: an error shows these."""

    names: Sequence[str]
    token: str
    fence: int | None
    shared: bool
    ttl: float  # seconds, as the next two
    guard: float
    hold_at_least: float  # what is left of it (R28)
    prefix: str

    def text(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def read(cls, text: object) -> Handed:
        """Raises ConfigurationError, which shows only the beginning: the whole text is enough to release the lock."""
        try:
            found = json.loads(text)  # type: ignore[arg-type] # a TypeError
            return cls(**{field: found[field] for field in cls._fields})
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigurationError(
                f"handed={options.begun(text)}: allowed is all of what lease.hand_over() returned, "
                "or with token= the names of the lock"
            ) from None
