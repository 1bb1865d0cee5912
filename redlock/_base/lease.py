"""What a holder sees of its lease, in both worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from redlock._core.lease import LeaseState

if TYPE_CHECKING:
    from redlock.errors import LockLost, Vote

AnyState_co = TypeVar("AnyState_co", bound=LeaseState, covariant=True)


class LeaseBase(Generic[AnyState_co]):
    """A lock held until `valid_until`, as far as this process can know.

    A promise about time, not about the resource: after a long pause the holder may act on what
    already belongs to somebody else.  The first look at the lease then says so, but a look is not a
    barrier; `fence` is: hand it to whatever you write to, and let that refuse smaller ones.
    """

    __slots__ = ("__weakref__", "_state")

    def __init__(self, state: AnyState_co) -> None:
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
    def token(self) -> str:
        """The random value of the keys on the masters.  It names this claim, and orders nothing."""
        return self._state.token

    @property
    def fence(self) -> int | None:
        """The fencing token, strictly increasing from grant to grant; None without fencing."""
        return self._state.fence

    @property
    def ttl(self) -> float:
        """Seconds, of the last acquire or extension that was won."""
        return self._state.ttl

    @property
    def valid_until(self) -> float:
        """On the clock of rule R5, which counts while the machine sleeps."""
        return self._state.valid_until

    @property
    def votes(self) -> tuple[Vote, ...]:
        """What each master said in the last round that was won."""
        return self._state.votes

    def remaining(self) -> float:
        """Seconds for which this is still valid; 0 when it is not.  No I/O."""
        return self._state.remaining()

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold the lock now.  No I/O; right also after a pause of any length."""
        return self._state.remaining() > 0

    @property
    def lost(self) -> bool:
        """Whether it ended without being released.  False for good after a normal release (C8)."""
        return self._state.lost

    def ensure(self, at_least: float = 0.0) -> None:
        """Raise `LockLost` unless more than `at_least` seconds remain.

        It does so for a lease that is valid for less than that as well, which can be released as usual.
        Call it right before a step that cannot be undone.  It cannot protect what happens after a
        pause between this look and that step; the fencing token can.
        """
        self._state.ensure(at_least)

    def loss(self) -> LockLost:
        """The error that says how this lease ended."""
        return self._state.loss()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied or pickled, it ends here: hand over its token and fence (lock(..., token=, fence=))"
        )

    def __repr__(self) -> str:
        return repr(self._state)
