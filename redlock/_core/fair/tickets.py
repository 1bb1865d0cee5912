"""The wire contract of clients that wait in order (R42): see `wire` for all other keys and calls.

The fence that such a client proposes is written with a zero in front, as 17 digits: no other is.  See tickets.lua.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redlock import scripts
from redlock._core import wire
from redlock._core.confirm import records
from redlock._core.tokens import TICKETS

if TYPE_CHECKING:
    from collections.abc import Iterable

LIFE = 1.0  # seconds for which a master keeps a ticket that is not renewed; the scripts have it as well


class Stands(NamedTuple):
    """Its turn comes after ``turns`` releases, and in ``wait`` seconds at least, unless a holder stays for longer."""

    turns: int
    wait: float


def acquire(keys: wire.Keys, token: str, ttl: float, proposal: int, fence_ttl: float, waiter: str) -> wire.Call:
    """`wire.acquire` for ``waiter``, which is in the queue, or would be if the name could not be had."""
    if keys.grants:
        call = records.acquire(keys, token, ttl, proposal, fence_ttl)
        script = scripts.compose("acquire", "fair", "recorded")
    else:
        call, script = wire.acquire(keys, token, ttl, proposal, fence_ttl), scripts.ACQUIRE_FAIR
    fence = written(proposal)
    args = (*call.args[:3], fence, *call.args[4:], waiter)
    return wire.Call(script, call.keys + beside(keys), args, wire.GRANTED.format(len(fence), fence).encode())


def stand(keys: wire.Keys, waiter: str, number: int, fence_ttl: float, *, new: bool) -> wire.Call:
    """Join the queue with the ticket ``number``.  ``new``: it is a proposal (R16), else it has settled."""
    args = (str(len(keys.locks)), waiter, str(number), wire.milliseconds(fence_ttl), "new" if new else "again")
    return wire.Call(scripts.TICKET, keys.locks + keys.fences + beside(keys), args)


def leave(keys: wire.Keys, waiter: str, fence_ttl: float) -> wire.Call:
    """Leave the queue.  Where it is empty, masters grant the names to any client."""
    return stand(keys, waiter, 0, fence_ttl, new=False)


def beside(keys: wire.Keys) -> tuple[str, ...]:
    return tuple(wire.fence_key(lock, ":tickets") for lock in keys.locks)


def written(fence: int) -> str:
    return f"{fence:017d}"


def in_order(held: Iterable[wire.Held]) -> bool:
    """Whether a master says that others may wait in order."""
    return any(one.holder == TICKETS for one in held)


def read_ticket(value: Any) -> tuple[int, Stands | None]:
    """The master's fence, and the answer to `stand`; None: the number is not greater than that fence (R18)."""
    match value:
        case [1, bytes(fence), int(turns), int(wait)] if turns >= 0:
            return wire.read_exceeded(fence), Stands(turns, wire.seconds(wait))
        case [0, bytes(fence)]:
            return wire.read_exceeded(fence), None
    raise wire.BadReply(f"unexpected answer {value!r:.80}")
