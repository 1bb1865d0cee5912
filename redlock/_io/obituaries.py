"""Notes of leases that were left behind, for the renewer to read."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState


class Watched:
    """Goes when its `Anchor` goes, and is watched for that."""

    __slots__ = ("__weakref__",)


class Obituary(weakref.ref[Any]):
    """Notes that the object which would give the lease ``state`` back has gone: the lease may have no holder.

    The collector, or whatever drops the last reference, calls back in the middle of anything; a signal handler may
    raise in there, and Python swallows that.  So the note is taken by a function without any Python in it, and cannot
    get lost. ``reader`` informs the renewer. It is called next, and may be cut short: then any renewer reads the note
    in its next round, once a second while it has leases.
    """

    __slots__ = ("reader", "state", "times")

    state: LeaseState
    reader: weakref.ref[Any]
    times: int  # how often it was read


_OBITUARIES: deque[Obituary] = deque()
_OFTEN_ENOUGH = 3  # a note that cannot be read must not hold up the others
_note = _OBITUARIES.append


def watch(then: Watched, state: LeaseState) -> Obituary:
    reader = weakref.ref(then, read_obituaries)
    obituary = Obituary(then, _note)  # the latest reference is called first
    obituary.state, obituary.reader, obituary.times = state, reader, 0
    return obituary


def read_obituaries(_: object = None) -> None:
    """Tell the renewer of each lease that was left behind.  May be cut short anywhere, and called in any thread."""
    while _OBITUARIES:
        obituary = _OBITUARIES[0]
        obituary.times += 1
        if obituary.times <= _OFTEN_ENOUGH:
            obituary.state.holder_gone()
        with contextlib.suppress(ValueError):  # another thread has read it as well
            _OBITUARIES.remove(obituary)
