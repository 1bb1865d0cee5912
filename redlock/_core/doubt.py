"""A release in doubt: it may overtake the acquire (R10), as it goes over other connections.

The lease was handed over by its token, or acquired on one event loop and released on another.  Then a master without
the key proves nothing, as the acquire may still be on its way.  A master that does not say that the key was ours is
asked again, after pauses that double (`Pipeline`), until the key must have expired.  Nearly always each is asked once.

Besides, the loop that acquired the lease sends a release of its own after the acquire (P7), once the first one was
judged.  Else the second one might be faster, and the lease would seem lost.

Also considered: to send everything over the loop that acquired (a release would wait for a blocked loop, and for ever
for a closed one); to let that loop wait for its late answers (it takes as long, and adds a state); a mark on the
masters, for an acquire to see (one more key in the hottest script, for us alone).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.tokens import released_token

if TYPE_CHECKING:
    from redlock._core.lease import LeaseState

AnySend = TypeVar("AnySend", bound=Send)


def doubted(request: AnySend, lease: LeaseState) -> AnySend:
    """Put ``request`` in doubt, unless it comes after all requests that set the keys: see `Send.doubt`.

    If a repair may have given a master the key, its first answer that the key was ours may be about the repair alone
    (R14).  By a second such answer the acquire has come as well.
    """
    if lease.in_order:
        return request
    token, repaired = lease.token, lease.repaired
    once: set[int] = set()  # repaired masters that have said once that the key was ours

    def remains(master: int, value: Any) -> bool:
        with suppress(ValueError):
            answer = wire.read_owned(value)
            if isinstance(answer, wire.NotOwned):  # "released" by an earlier request, whose answer was lost
                return released_token(answer.other) != token or master in repaired
        if master not in repaired or master in once:
            return False
        once.add(master)
        return True

    request.doubt = remains
    request.usual = ()  # so that every answer is parsed, and shown to the doubt
    return request
