"""Makes a lease whole soon after its grant: masters that refused it, or said nothing, get its key (R37).

If no other master has the key, the lease rests on each one of its majority: another client needs only one that forgets,
or whose clock steps.  Mostly the others have refused because of a failed attempt, which is rolled back at this moment:
to ask again at once would come too early.  To subscribe for this alone would cost two connections to each master.

No other client can be granted the name while the lease is valid, so the grant is the confirmation that R14 asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core import readings
from redlock._core.effects import Listen, Op, Send, Timeout, wait
from redlock._core.kernel import validity
from redlock._core.kernel.extension import repair
from redlock._core.subscriptions import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redlock._core.lease import LeaseState
    from redlock._core.settings import LockSpec, MastersSettings

AGAIN = 1.0  # seconds from the first repair to the second


def lacking(lease: LeaseState) -> list[int]:
    return [] if lease.last is None or lease.extensions else readings.lacking(lease.last)


def make_whole(settings: MastersSettings, spec: LockSpec, lease: LeaseState, missing: Sequence[int]) -> Iterator[Send]:
    """Give the key to the ``missing`` masters on which the name is free."""
    left = lease.valid_until - lease.clock() + validity.drift(lease.ttl, settings.drift_factor)
    return repair(settings, spec, lease, missing, left, wanted=lambda: not lease.extensions)


def listen(settings: MastersSettings, spec: LockSpec, lease: LeaseState, until: float) -> Op[None]:
    """Give the key to each master that lacks it, as soon as it has announced a release."""
    overheard = Overheard(lease, spec, len(settings.masters))
    yield Listen(overheard)
    while not isinstance((yield from wait(until)), Timeout) and not lease.over and lacking(lease):
        free, overheard.free = sorted(overheard.free), set()
        yield from make_whole(settings, spec, lease, free)


class Overheard(Subscription):
    """Notices which of the masters that lack the key of a lease may be free.  The lease's own release ends it."""

    __slots__ = ("_lease", "free")

    def __init__(self, lease: LeaseState, spec: LockSpec, masters: int) -> None:
        super().__init__(spec.keys.locks, masters, watches=True)
        self._lease = lease
        self.free: set[int] = set()  # that announced a release

    def hear(self, master: int, token: bytes) -> bool:  # noqa: ARG002 - any release counts
        if self._lease.over:
            return True
        if master in lacking(self._lease):
            self.free.add(master)
        return master in self.free
