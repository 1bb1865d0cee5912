"""The small worlds that are explored: who may do what, how often, and what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .specification import Rules

if TYPE_CHECKING:
    from .specification import State

Path: TypeAlias = "tuple[str, ...]"  # steps, as people read them
FAULTS: Final = ("crash", "forget", "lose", "unheard", "evict")


class Broken(Exception):  # noqa: N818 - a promise
    def __init__(self, promise: str, path: Path) -> None:
        super().__init__(promise)
        self.promise, self.path = promise, path


class Small(Rules):
    """Time without a measure: all TTLs are alike, so what is asked for first is over first, and nothing else matters.

    What is asked for now is over behind everything that is there; with a ``short`` TTL before all of that.  There is a
    place between any two ends: a lease that takes no account of the drift is over there.
    """

    SHORT: Final = 1

    def __init__(self, masters: int = 3, *, confirm: bool = False) -> None:
        super().__init__(masters, ttl=2, drift=0, least=1, confirm=confirm)

    def ends(self, state: State, ttl: float) -> float:
        if ttl == self.SHORT:
            return 1
        return 2 + max(left_of(state), default=0)


def left_of(state: State) -> list[float]:
    """All that is left of anything."""
    left = [x for one in state.masters for x in (one.key.left if one.key else 0, one.quarantined)]
    left += [x for one in state.clients for x in (one.left, *(asked.left for asked in one.rounds))]
    return left + [one.left for line in state.flight for queue in line for one in queue]


@dataclass(frozen=True)
class Scope:
    """``proposals``: the fences that each client may propose first: lower, equal, higher.  ``most``: so many faults.

    ``held``: the first client has the lock already, by the votes of a majority; what it asked the others is on its way.
    ``ttls``: what an extension may ask for.  ``fences``: P2 is looked at; where masters forget it rests on wall clocks,
    which are not in here.
    """

    name: str
    what: str
    attempts: tuple[int, ...] = (1, 1)
    extensions: tuple[int, ...] = (1, 0)
    ttls: tuple[int, ...] = (2,)
    proposals: tuple[tuple[int, ...], ...] = ((2,), (1, 2, 3))
    faults: tuple[str, ...] = ()
    most: int = 0
    fences: bool = True
    held: bool = False
    confirm: bool = False


_HELD: Final[dict[str, Any]] = {"held": True, "extensions": (0, 0), "proposals": ((2,), (1,))}
SCOPES: Final = {
    scope.name: scope
    for scope in (
        Scope("contest", "two ask at once, with the same fence", extensions=(0, 0), proposals=((2,), (2,))),
        Scope("hand-over", "one holds, extends and releases, the other asks", held=True, proposals=((2,), (1,))),
        Scope("shorter", "an extension asks for less time", held=True, ttls=(Small.SHORT,), proposals=((2,), (3,))),
        Scope("twice", "the other tries twice", **_HELD | {"attempts": (1, 2)}),
        Scope("crash", "a client is gone", faults=("crash",), most=1, **_HELD),
        Scope("forget", "a master restarts without its memory", faults=("forget",), most=1, fences=False, **_HELD),
        Scope("lose", "a request is lost with its connection", faults=("lose",), most=1, **_HELD),
        Scope("unheard", "an answer is lost", faults=("unheard",), most=1, **_HELD),
        Scope(
            "evict",
            "a master loses the key, or its clock steps far, and an expiry is confirmed (R35)",
            faults=("evict",),
            most=1,
            confirm=True,
            **_HELD,
        ),
    )
}
# Too large for each commit.
MORE: Final = {
    scope.name: scope
    for scope in (
        Scope("again", "the one that holds comes again", **_HELD | {"attempts": (2, 1)}),
        Scope("all", "two ask at once, and the one that holds extends", proposals=((2,), (1,))),
        Scope("forget-and-extend", "a master restarts without its memory, and is given the key back (R14)",
              held=True, faults=("forget",), most=1, fences=False, proposals=((2,), (1,))),
        Scope("evict-twice", "as evict, and the other tries twice (R35)",
              faults=("evict",), most=1, confirm=True, **_HELD | {"attempts": (1, 2), "proposals": ((2,), (3,))}),
        Scope("evict-and-extend", "as evict, and the one that holds extends (R35)",
              held=True, faults=("evict",), most=1, confirm=True, proposals=((2,), (1,))),
    )
}  # fmt: skip
