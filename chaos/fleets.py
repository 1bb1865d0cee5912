"""The small fleets in which lists of masters change (`chaos.lists`): what is explored, and what must fail."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from .lists import LIFE, Client, Lists, Row, State
from .mutants import Mutant
from .scopes import Broken, Path
from .specification import Forbidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Next: TypeAlias = "tuple[Path, State, Left]"


@dataclass(frozen=True)
class World:
    """``lists``: of each client.  ``faults``: ``silent``, ``forget``; ``most`` of them.

    ``reached``: each works already, with these masters; the others were silent.  ``ticks``: so much time passes, at most.
    """

    name: str
    what: str
    lists: tuple[tuple[int, ...], ...]
    faults: tuple[str, ...] = ()
    most: int = 0
    reached: tuple[tuple[int, ...], ...] = ()
    ticks: float = math.inf


class Left(NamedTuple):
    """What may still happen."""

    faults: int
    ticks: float


_TO_THREE: Final = ((0,), (0, 1, 2))
_REPLACED: Final = ((0, 1, 2), (1, 2, 3))
WORLDS: Final = {
    world.name: world
    for world in (
        World("one-to-three", "one has one master, the other three (R34)", _TO_THREE),
        World("list-forgotten", "a master forgets the lists that it has shown (R34)", _TO_THREE, ("forget",), 1),
        World("list-unheard", "a master is silent for one of them (R34)", _TO_THREE, ("silent",), 1),
        World(
            "list-met",
            "two lists have come into use apart, and meet (R34)",
            _REPLACED,
            reached=((0, 1), (3, 2)),
            ticks=1,
        ),
    )
}
# Too large for each commit.
MORE_WORLDS: Final = {
    world.name: world for world in (World("one-replaced", "one of three masters is another one (R34)", _REPLACED),)
}


class Fleet:
    """Every step out of every state.  Who may take a lease does: the longest is the worst, and nothing else depends on it."""

    def __init__(self, rules: Lists, world: World) -> None:
        self.rules, self.world = rules, world
        self._used = [tuple(m in one for one in rules.lists) for m in range(rules.size)]

    def begin(self) -> tuple[State, Left]:
        rules, state = self.rules, self.rules.start()
        for c, reached in enumerate(self.world.reached):
            state = rules.come(state, c)
            for m in reached:
                state = rules.announce(state, c, m)
            for m in rules.lists[c].difference(reached):
                state = rules.silent(state, c, m)
            state = rules.begin(state, c)
        return state, Left(self.world.most, self.world.ticks)

    def following(self, state: State, left: Left) -> Iterator[Next]:
        for path, after, remains in self._allowed(state, left):
            if after.apart and not state.apart and "silent" not in self.world.faults:
                continue
            for c in range(len(after.clients)):
                with suppress(Forbidden):
                    after = self.rules.take(after, c)  # noqa: PLW2901
            wrong = self.rules.agreed(after) or self.rules.found(after)
            if wrong:
                raise Broken(wrong, path)
            yield path, after, remains

    def _allowed(self, state: State, left: Left) -> Iterator[Next]:
        rules, struck = self.rules, left._replace(faults=left.faults - 1)
        can = self.world.faults if left.faults else ()
        for c, masters in enumerate(rules.lists):
            yield from self._if_allowed(f"come {c}", left, lambda: rules.come(state, c))  # noqa: B023
            yield from self._if_allowed(f"begin {c}", left, lambda: rules.begin(state, c))  # noqa: B023
            yield from self._if_allowed(f"leave {c}", left, lambda: rules.leave(state, c))  # noqa: B023
            for m in sorted(masters):
                step = f"announce {c} {m}"
                yield from self._if_allowed(step, left, lambda: rules.announce(state, c, m))  # noqa: B023
                yield from self._if_allowed(
                    f"{step} unheard",
                    left,
                    lambda: rules.announce(state, c, m, heard=False),  # noqa: B023
                )
                if "silent" in can:
                    yield from self._if_allowed(f"silent {c} {m}", struck, lambda: rules.silent(state, c, m))  # noqa: B023
        for m in range(rules.size) if "forget" in can else ():
            yield from self._if_allowed(f"forget {m}", struck, lambda: rules.forget(state, m))  # noqa: B023
        if left.ticks:
            yield ("wait",), rules.wait(state), left._replace(ticks=left.ticks - 1)

    def _if_allowed(self, step: str, left: Left, take: Callable[[], State]) -> Iterator[Next]:
        with suppress(Forbidden):
            yield (step,), take(), left

    def key(self, state: State, left: Left) -> int:
        """Equal for states that go on alike: masters that the same clients use may be exchanged for each other."""
        clients = state.clients
        columns = [
            (used, row, tuple([one.said[m] for one in clients]), tuple([m in one.silent for one in clients]))
            for m, (used, row) in enumerate(zip(self._used, state.masters, strict=True))
        ]
        return hash((tuple(sorted(columns)), tuple([(one.phase, one.lease) for one in clients]), state.apart, left))


LIST_MUTANTS: Final[dict[str, Mutant]] = {}


def _mutant(name: str, world: str) -> Callable[[type[Lists]], type[Lists]]:
    def add(rules: type[Lists]) -> type[Lists]:
        what = (rules.__doc__ or "").strip().removesuffix(".")
        LIST_MUTANTS[name] = Mutant(name, what, "R34", rules, WORLDS[world])
        return rules

    return add


@_mutant("one-in-common", "one-to-three")
class OneInCommon(Lists):
    """Lists that have a master in common are taken for lists that go together (R34)."""

    def go_together(self, c: int, o: int) -> bool:
        return bool(self.lists[c] & self.lists[o])


@_mutant("majority-has-it", "one-to-three")
class MajorityHasIt(Lists):
    """A client begins when a majority has recorded its list, and asks nobody else (R34)."""

    def heard_all(self, client: Client, c: int) -> bool:
        return True


@_mutant("records-anything", "one-to-three")
class RecordsAnything(Lists):
    """A master records a list that does not go with one in use, and only tells of that (R34)."""

    def blocked(self, row: Row, c: int) -> bool:
        return False


@_mutant("gone-when-closed", "one-to-three")
class GoneWhenClosed(Lists):
    """The list of a client that is closed is gone, and its leases are not (R34)."""

    def after_leaving(self, left: int) -> int:
        return 0


@_mutant("lease-outlives-list", "one-to-three")
class LeaseOutlivesList(Lists):
    """A lease may last for longer than others know the list (R34)."""

    def lasts(self) -> int:
        return LIFE


@_mutant("forgets-with-the-master", "list-forgotten")
class ForgetsWithTheMaster(Lists):
    """A list is taken for out of use when the master that has shown it shows it no more (R34)."""

    def remembered(self, before: int, now: int) -> int:
        return now


@_mutant("both-go-on", "list-met")
class BothGoOn(Lists):
    """Two lists that came into use apart stay in use (R34)."""

    def outnumbered(self, client: Client, c: int) -> bool:
        return False


@_mutant("both-give-way", "list-met")
class BothGiveWay(Lists):
    """Of two lists that came into use apart neither stays (R34)."""

    def outnumbered(self, client: Client, c: int) -> bool:
        return bool(self.shown(client, c))
