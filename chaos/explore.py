"""``redlock-chaos explore``: every step out of every state of a small world, in which each kind of fault strikes.

Breadth first, so a violation comes with one of the shortest paths to it.  What need not be told apart is not:

- What arrives changes one master, and what its client knows of that one.  So it arrives right before somebody looks: its
  client, which decides by it; or another request to that master; or a fault there.  What is left in the end arrives then,
  in every order.
- Masters may be exchanged for each other.  A state is remembered by a hash of 64 bits.
"""

from __future__ import annotations

import gc
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from .fleets import LIST_MUTANTS, MORE_WORLDS, WORLDS, Fleet, World
from .lists import Lists
from .mutants import MUTANTS
from .scopes import MORE, SCOPES, Broken, Path, Scope, Small, left_of
from .specification import Client, Forbidden, Master, Round, Rules, State, put

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

_VIOLATED: Final = 1
EACH: Final[dict[str, Scope | World]] = {**SCOPES, **WORLDS}
_MORE: Final[dict[str, Scope | World]] = {**MORE, **MORE_WORLDS}
BROKEN: Final = MUTANTS | LIST_MUTANTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Take every step that the specification allows, in small worlds of a few masters and two clients, and look at "
        "every promise in every state.  Exit 0: all are kept, and every mutant breaks the promise that it has to; 1: not so."
    )
    parser.add_argument(
        "--scope", choices=tuple(EACH | _MORE), metavar="NAME", help=f"only this one: {', '.join(EACH | _MORE)}"
    )
    parser.add_argument("--mutant", choices=tuple(BROKEN), metavar="NAME", help="show how this one breaks its promise")
    parser.add_argument("--more", action="store_true", help="larger worlds as well, which takes many minutes")
    parser.add_argument("--faults", type=int, metavar="N", help="N faults of a kind instead of one")


def main(args: argparse.Namespace) -> int:
    if args.mutant:
        mutant = BROKEN[args.mutant]
        found = explore(explorer_of(mutant.scope, mutant.rules))
        print(f"{mutant.name}: {mutant.what}", *found.path, found.violation or "nothing is broken", sep="\n")
        return 0 if found.violation.startswith(mutant.breaks) else _VIOLATED
    scopes = [(EACH | _MORE)[args.scope]] if args.scope else [*EACH.values(), *(_MORE.values() if args.more else ())]
    right = True
    print(f"{'scope':<20}{'states':>9}{'steps':>10}{'depth':>7}{'seconds':>9}")
    for scope in scopes:
        one = replace(scope, most=args.faults) if args.faults and scope.most else scope
        found = explore(explorer_of(one))
        right = right and not found.violation
        said = found.violation or "holds"
        print(
            f"{one.name:<20}{found.states:>9,}{found.steps:>10,}{found.depth:>7}{found.seconds:>9.1f}  {said}: {one.what}",
            flush=True,
        )
        if found.violation:
            print(*found.path, sep="\n")
    for mutant in () if args.scope else BROKEN.values():
        found = explore(explorer_of(mutant.scope, mutant.rules))
        caught = found.violation.startswith(mutant.breaks)
        right = right and caught
        print(
            f"{'caught' if caught else 'NOT CAUGHT'} after {found.states:,} states: {mutant.name}: {mutant.what}",
            flush=True,
        )
    return 0 if right else _VIOLATED


def explorer_of(scope: Scope | World, rules: type[Any] | None = None) -> Explores:
    """With the rules as they are, or with those of a mutant."""
    if isinstance(scope, World):
        return Fleet((rules or Lists)(*scope.lists), scope)
    return Explorer((rules or Small)(confirm=scope.confirm), scope)


class Left(NamedTuple):
    """What may still happen: attempts and extensions of each client, and faults."""

    attempts: tuple[int, ...]
    extensions: tuple[int, ...]
    faults: int


Next: TypeAlias = "tuple[Path, State, Left]"


_Arrival: TypeAlias = "tuple[str, int | None, str]"


class Explorer:
    def __init__(self, rules: Rules, scope: Scope) -> None:
        self.rules, self.scope = rules, scope
        self._known: dict[State, list[tuple[tuple[_Arrival, ...], State]]] = {}

    def begin(self) -> tuple[State, Left]:
        rules, scope = self.rules, self.scope
        state, left = rules.start(len(scope.attempts)), Left(scope.attempts, scope.extensions, scope.most)
        if scope.held:
            state = rules.ask(state, 0, rules.token(0, 0), scope.proposals[0][0])
            for m in range(rules.majority()):
                state = rules.arrive(state, 0, m)
            state, left = rules.grant(state, 0), left._replace(attempts=(left.attempts[0] - 1, *left.attempts[1:]))
        return state, left

    def following(self, state: State, left: Left) -> Iterator[Next]:
        """Every step out of ``state`` that the rules allow, with what has to arrive before it.  `Broken`: one breaks a promise."""
        if not any(left.attempts) and all(one.phase in ("idle", "crashed") for one in state.clients):
            self.finish(state)
        for path, after, remains in self._allowed(state, left):
            wrong = self._wrong(state, after)
            if wrong:
                raise Broken(wrong, path)
            yield path, after, remains

    def _wrong(self, before: State, after: State) -> str | None:
        rules = self.rules
        wrong = rules.exclusive(after) or rules.told(before, after) or rules.clean(after)
        return wrong or (rules.fenced(before, after) if self.scope.fences else None)

    # -- what arrives --------------------------------------------------------------------------------

    def arrivals(self, state: State, m: int) -> list[tuple[Path, State]]:
        """All that may become of ``state`` while requests arrive at master ``m``, and its key goes."""
        return [
            (_shown(m, steps), _with_column(state, m, end)) for steps, end in self._of_one_master(_column(state, m))
        ]

    def _of_one_master(self, column: State) -> list[tuple[tuple[_Arrival, ...], State]]:
        """... as if there were no other master."""
        known = self._known.get(column)
        if known is not None:
            return known
        rules = self.rules
        found: dict[State, tuple[_Arrival, ...]] = {column: ()}
        new = [column]
        while new:
            before = new.pop()
            steps: list[tuple[_Arrival, State]] = []
            for c, line in enumerate(before.flight):
                if line[0]:
                    after, what = rules.arrive(before, c, 0), line[0][0].what
                    wrong = rules.foreign(before, after, c, 0) or rules.freed(before, after, c, 0) or rules.clean(after)
                    if wrong:
                        raise Broken(
                            wrong, (*(f"{step} {who} {it}" for step, who, it in found[before]), f"arrive {c} {what}")
                        )
                    steps.append((("arrive", c, what), after))
            key = before.masters[0].key
            if key and key.left <= 0:
                steps.append((("expire", None, ""), rules.expire(before, 0)))
            for step, after in steps:
                if after not in found:
                    found[after] = (*found[before], step)
                    new.append(after)
        self._known[column] = known = [(steps, after) for after, steps in found.items()]
        return known

    def heard(self, state: State, c: int, asked: int, among: tuple[int, ...]) -> Iterator[tuple[Path, State]]:
        """... at all masters ``among``, so that client ``c`` has the answer of each to the round number ``asked``."""
        if not among:
            yield (), state
            return
        m, *others = among
        for steps, column in self._of_one_master(_column(state, m)):
            if steps and steps[-1][:2] == ("arrive", c) and column.clients[c].rounds[asked].said[0] is not None:
                for more, end in self.heard(_with_column(state, m, column), c, asked, tuple(others)):
                    yield (*_shown(m, steps), *more), end

    def _decided(self, state: State, c: int, asked: int, *, least: int) -> Iterator[tuple[Path, State]]:
        """The answers that a decision may rest on: of no masters, one, several."""
        silent = [m for m, reply in enumerate(state.clients[c].rounds[asked].said) if reply is None]
        for size in range(max(0, least - (self.rules.size - len(silent))), len(silent) + 1):
            for among in combinations(silent, size):
                yield from self.heard(state, c, asked, among)

    def finish(self, state: State) -> None:
        """What is on its way arrives, in every order at each master; what is there then may stay for its TTL."""
        for m in range(self.rules.size):
            self._of_one_master(_column(state, m))

    # -- what somebody does --------------------------------------------------------------------------

    def _allowed(self, state: State, left: Left) -> Iterator[Next]:
        rules = self.rules
        for c, client in enumerate(state.clients):
            if client.phase == "idle":
                yield from self._asks(state, left, c)
            elif client.phase == "holding":
                yield from self._holds(state, left, c)
            elif client.phase != "crashed":
                yield from self._tries(state, left, c)
            if left.faults:
                yield from self._fails(state, self._struck(left), c)
        soon = min((one for one in left_of(state) if one > 0), default=0)
        if soon:
            yield ("wait",), rules.wait(state, soon), left
        if left.faults:
            yield from self._strikes(state, self._struck(left))

    def _strikes(self, state: State, left: Left) -> Iterator[Next]:
        rules, faults = self.rules, self.scope.faults
        for m in range(rules.size) if {"forget", "evict"}.intersection(faults) else ():
            for path, before in self.arrivals(state, m):
                key = before.masters[m].key
                if "forget" in faults and before.masters[m] != Master():
                    yield (*path, f"restart {m}"), rules.restart(before, m), left
                if "evict" in faults and key and key.left > 0:
                    yield (*path, f"evict {m}"), rules.evict(before, m), left

    def _fails(self, state: State, left: Left, c: int) -> Iterator[Next]:
        rules, faults = self.rules, self.scope.faults
        if "crash" in faults and state.clients[c].phase not in ("idle", "crashed"):
            yield (f"crash {c}",), rules.crash(state, c), left
        for m, queue in enumerate(state.flight[c]):
            if queue and "lose" in faults:
                with suppress(Forbidden):
                    yield (f"lose {c} {m} {queue[0].what}",), rules.lose(state, c, m), left
            if queue and "unheard" in faults and queue[0].what != "release":
                for path, before in self.arrivals(state, m):
                    if before.flight[c][m] == queue:
                        yield (*path, f"unheard {c} {m} {queue[0].what}"), rules.arrive(before, c, m, heard=False), left

    def _asks(self, state: State, left: Left, c: int) -> Iterator[Next]:
        if left.attempts[c]:
            number = self.scope.attempts[c] - left.attempts[c]
            attempts = tuple(n - (one == c) for one, n in enumerate(left.attempts))
            for proposal in self.scope.proposals[c]:
                after = self.rules.ask(state, c, self.rules.token(c, number), proposal + number)
                yield (f"ask {c} proposes {proposal + number}",), after, left._replace(attempts=attempts)

    def _tries(self, state: State, left: Left, c: int) -> Iterator[Next]:
        rules = self.rules
        yield (f"give_up {c}",), rules.give_up(state, c), left
        if state.clients[c].phase == "leaving":
            return
        last = len(state.clients[c].rounds) - 1
        for path, before in self._decided(state, c, last, least=rules.majority()):
            fence = 1 + max(reply.fence for reply in before.clients[c].rounds[0].said if reply)
            yield from self._if_allowed(path, left, f"grant {c}", lambda: rules.grant(before, c))  # noqa: B023
            yield from self._if_allowed(path, left, f"settle {c} {fence}", lambda: rules.settle(before, c, fence))  # noqa: B023
            if rules.confirm:
                step = f"leave_phantom {c} {fence}"
                yield from self._if_allowed(path, left, step, lambda: rules.leave_phantom(before, c, fence))  # noqa: B023

    def _holds(self, state: State, left: Left, c: int) -> Iterator[Next]:
        rules, client = self.rules, state.clients[c]
        yield (f"release {c}",), rules.release(state, c), left
        if left.extensions[c]:
            mark = 1 + self.scope.extensions[c] - left.extensions[c]
            fewer = left._replace(extensions=tuple(n - (one == c) for one, n in enumerate(left.extensions)))
            for ttl in self.scope.ttls:
                yield from self._if_allowed((), fewer, f"extend {c} {mark}", lambda: rules.extend(state, c, mark, ttl))  # noqa: B023
        for asked, one in enumerate(client.rounds):
            mark = one.request.mark
            for path, before in self._decided(state, c, asked, least=rules.majority()) if mark else ():
                yield from self._if_allowed(path, left, f"extended {c} {mark}", lambda: rules.extended(before, c, mark))  # noqa: B023
                yield from self._if_allowed(path, left, f"denied {c} {mark}", lambda: rules.denied(before, c, mark))  # noqa: B023
            for m in range(rules.size):
                if not mark and (known := one.said[m]) is not None and known.said != "held":
                    continue  # that changes nothing
                for path, before in self.heard(state, c, asked, (m,) if mark and one.said[m] is None else ()):
                    yield from self._if_allowed(path, left, f"repair {c} {m}", lambda: rules.repair(before, c, m))  # noqa: B023

    def _if_allowed(self, path: Path, left: Left, step: str, take: Callable[[], State]) -> Iterator[Next]:
        with suppress(Forbidden):
            yield (*path, step), take(), left

    def _struck(self, left: Left) -> Left:
        return left._replace(faults=left.faults - 1)

    def key(self, state: State, left: Left) -> int:
        """Equal for states that go on alike."""
        columns = zip(
            state.masters,
            zip(*state.flight, strict=True),
            zip(*(one.said for client in state.clients for one in client.rounds), strict=True)
            if any(client.rounds for client in state.clients)
            else ((),) * self.rules.size,
            strict=True,
        )
        clients = tuple(
            (client[:4], client.floor, *((one.request, one.left) for one in client.rounds)) for client in state.clients
        )
        return hash((tuple(sorted(map(hash, columns))), clients, state.granted, left))


def _shown(m: int, steps: tuple[_Arrival, ...]) -> Path:
    return tuple(f"{step} {m}" if c is None else f"{step} {c} {m} {what}" for step, c, what in steps)


def _column(state: State, m: int) -> State:
    """What one master has to do with."""
    clients = [
        Client(one.phase, one.token, 0, 0, tuple([Round(asked.request, 0, (asked.said[m],)) for asked in one.rounds]))
        for one in state.clients
    ]
    return State((state.masters[m],), tuple(clients), tuple([(line[m],) for line in state.flight]))


def _with_column(state: State, m: int, column: State) -> State:
    """A hot spot: so nothing is replaced by name, and what is the same stays the same."""
    clients = list(state.clients)
    for c, one in enumerate(column.clients):
        for number, asked in enumerate(one.rounds):
            before = clients[c].rounds[number]
            if before.said[m] is not asked.said[0]:
                heard = Round(before.request, before.left, put(before.said, m, asked.said[0]))
                clients[c] = clients[c]._replace(rounds=put(clients[c].rounds, number, heard))
    flight = [
        line if line[m] is of[0] else put(line, m, of[0]) for line, of in zip(state.flight, column.flight, strict=True)
    ]
    return State(put(state.masters, m, column.masters[0]), tuple(clients), tuple(flight), state.granted)


@dataclass
class Explored:
    states: int = 0
    steps: int = 0
    depth: int = 0
    violation: str = ""
    path: tuple[str, ...] = ()
    complete: bool = True
    seconds: float = 0.0


class Explores(Protocol):
    """``left``: what may still happen."""

    def begin(self) -> tuple[Any, Any]: ...

    def following(self, state: Any, left: Any) -> Iterable[tuple[Path, Any, Any]]: ...

    def key(self, state: Any, left: Any) -> int: ...


def explore(explorer: Explores, most: float = float("inf")) -> Explored:
    """All of it, or until a promise is broken, or ``most`` states.  ``steps``: each with what has to arrive before it."""
    began, found = time.process_time(), Explored()
    state, left = explorer.begin()
    first = explorer.key(state, left)
    parents: dict[int, tuple[int, Path] | None] = {first: None}
    layer, number = [(first, state, left)], first
    gc.disable()  # no state is part of a cycle, and all of them would be looked at again and again
    try:
        while layer:
            following = []
            for number, state, left in layer:
                for path, after, remains in explorer.following(state, left):
                    found.steps += 1
                    key = explorer.key(after, remains)
                    if key not in parents:
                        parents[key] = number, path
                        following.append((key, after, remains))
                if len(parents) > most:
                    found.complete, following = False, []
                    break
            layer = following
            found.depth += bool(layer)
    except Broken as broken:
        found.violation, found.path = broken.promise, (*_path(parents, number), *broken.path)
    finally:
        gc.enable()
    found.states, found.seconds = len(parents), time.process_time() - began
    return found


def _path(parents: dict[int, tuple[int, Path] | None], number: int) -> Path:
    paths: list[Path] = []
    while (parent := parents[number]) is not None:
        number, path = parent
        paths.append(path)
    return tuple(step for path in reversed(paths) for step in path)
