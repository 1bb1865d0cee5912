"""Lists of masters that change (R34), as a step relation beside `chaos.specification`, which says what a lock is on one list.

What a lock rests on when clients have different lists is one sentence: with lists that are `compatible`, each majority of
the one has a master in each majority of the other, so what the specification says of two majorities goes on to be true.  What is
left to be kept, by steps, is that no two lists are in use that are not.  That is all of this file: no lock, no key, no fence.

A *client* is one process, with one list, for as long as it lives.  It announces the list to its masters (`announce`), begins
when it may (`begin`), and takes leases (`take`).  There is one clock, which ticks: a list counts for `LIFE` after it was
recorded, a lease lasts for half of that at most.

    clients   come  announce  begin  take  leave
    world     wait  silent  forget

`agreed` and `found` are the promises.  As in the specification nothing has to happen: who is killed takes no step any more.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from .specification import Forbidden, put

if TYPE_CHECKING:
    from collections.abc import Collection, Set as AbstractSet

Phase: TypeAlias = Literal["away", "new", "works", "gone"]
Row: TypeAlias = "tuple[int, ...]"  # for how long the list of each client counts yet; 0: not at all

LIFE: Final = 2  # ticks, of one max_ttl each


def majority(masters: Collection[object]) -> int:
    return len(masters) // 2 + 1  # R1


def compatible(one: AbstractSet[object], other: AbstractSet[object]) -> bool:
    """Whether every majority of the one meets every majority of the other."""
    return majority(one) + majority(other) > len(one | other)


class Client(NamedTuple):
    phase: Phase = "away"
    said: tuple[Row, ...] = ()  # by each master: what is left of each list
    silent: frozenset[int] = frozenset()  # masters that said nothing for `node_timeout`
    lease: int = 0  # what is left of the longest that it has


class State(NamedTuple):
    """``masters``: what each of them has recorded.  ``apart``: somebody works, and a master of its list was silent, or has forgotten it."""

    masters: tuple[Row, ...]
    clients: tuple[Client, ...]
    apart: bool = False


class Lists:
    """``lists``: which masters each client uses."""

    def __init__(self, *lists: Collection[int]) -> None:
        self.lists = tuple(frozenset(one) for one in lists)
        self.size = 1 + max(max(one) for one in self.lists)
        self._nothing: tuple[Row, ...] = ((0,) * len(self.lists),) * self.size

    def start(self) -> State:
        return State(self._nothing, (Client(said=self._nothing),) * len(self.lists))

    # -- what a mutant may get wrong -----------------------------------------------------------------

    def go_together(self, c: int, o: int) -> bool:
        return compatible(self.lists[c], self.lists[o])

    def blocked(self, row: Row, c: int) -> bool:
        """A master records no list that does not go with one that counts there."""
        return bool(self.against(row, c))

    def after_leaving(self, left: int) -> int:
        """What was taken may live on: no lease lasts for longer than half of the life of a list."""
        return min(left, LIFE // 2)

    def remembered(self, before: int, now: int) -> int:
        """A list that was seen is in use until it is too old, whichever master forgets it."""
        return max(before, now)

    def lasts(self) -> int:
        """No lease lasts longer than others know the list: who works is known to a majority for a tick, or more."""
        return LIFE // 2

    def heard_all(self, client: Client, c: int) -> bool:
        """A master that is further away may be the only one that two lists share."""
        return self.lists[c] <= {*self.recorded(client, c), *client.silent}

    def outnumbered(self, client: Client, c: int) -> bool:
        """Of two in use the one stays that more of the masters of both have recorded; where equal the smaller one."""
        for o in self.shown(client, c):
            rows = [client.said[m] for m in self.lists[c] & self.lists[o]]
            ours, theirs = sum(row[c] > 0 for row in rows), sum(row[c] <= 0 < row[o] for row in rows)
            if theirs and (-theirs, o) < (-ours, c):
                return True
        return False

    # -- what a client knows -------------------------------------------------------------------------

    def against(self, row: Row, c: int) -> list[int]:
        return [o for o, left in enumerate(row) if left > 0 and not self.go_together(c, o)]

    def shown(self, client: Client, c: int) -> set[int]:
        return {o for row in client.said for o in self.against(row, c)}

    def recorded(self, client: Client, c: int) -> list[int]:
        return [m for m in self.lists[c] if client.said[m][c] > 0]

    def gives_way(self, client: Client, c: int) -> bool:
        return bool(self.shown(client, c)) and (client.phase == "new" or self.outnumbered(client, c))

    # -- clients -------------------------------------------------------------------------------------

    def come(self, state: State, c: int) -> State:
        client = state.clients[c]
        self._must(client.phase == "away", "it has come")
        return self._with(state, c, client._replace(phase="new"))

    def announce(self, state: State, c: int, m: int, *, heard: bool = True) -> State:
        """Master ``m`` is told its list, records it if it may, and says what counts there; again and again.

        ``heard``: or the answer is lost, or so late that it counts for nothing.  Who gives way takes its entry back, who has
        left makes it shorter.
        """
        client, row = state.clients[c], state.masters[m]
        self._must(client.phase != "away" and m in self.lists[c], "it does not use it")
        others = tuple(left if o in self.against(row, c) else 0 for o, left in enumerate(row))
        if client.phase == "gone":
            row = put(row, c, self.after_leaving(row[c]))
        else:
            row = put(row, c, 0 if self.blocked(row, c) or self.gives_way(client, c) else LIFE)
        state = state._replace(masters=put(state.masters, m, row))
        if client.phase == "gone" or not heard:
            return state
        now = put(tuple(map(self.remembered, client.said[m], others)), c, row[c])
        return self._with(state, c, self._judged(client._replace(said=put(client.said, m, now)), c))

    def begin(self, state: State, c: int) -> State:
        """A majority has recorded it, and each other one has answered, or was silent for `node_timeout` since."""
        client = state.clients[c]
        self._must(client.phase == "new", "it has begun")
        self._must(not self.shown(client, c), "it was shown a list that does not go with its own")
        has = set(self.recorded(client, c))
        self._must(len(has) >= majority(self.lists[c]), "no majority has recorded its list")
        self._must(self.heard_all(client, c), "a master has not answered")
        state = state._replace(apart=state.apart or bool(client.silent - has))
        return self._with(state, c, client._replace(phase="works"))

    def take(self, state: State, c: int) -> State:
        client = state.clients[c]
        self._must(client.phase == "works" and not self.outnumbered(client, c), "it gets nothing")
        return self._with(state, c, client._replace(lease=max(client.lease, self.lasts())))

    def leave(self, state: State, c: int) -> State:
        """It is closed, in order: what it took may live on, as leases that were handed over do."""
        client = state.clients[c]
        self._must(client.phase in ("new", "works"), "it is not there")
        return self._with(state, c, Client("gone", self._nothing, lease=client.lease))

    # -- the world -----------------------------------------------------------------------------------

    def silent(self, state: State, c: int, m: int) -> State:
        """`node_timeout` has passed since a majority has recorded the list, and ``m`` has not answered."""
        client = state.clients[c]
        has = self.recorded(client, c)
        self._must(client.phase == "new" and len(has) >= majority(self.lists[c]), "no majority has recorded its list")
        self._must(m in self.lists[c] and m not in has and m not in client.silent, "it is not silent")
        return self._with(state, c, client._replace(silent=client.silent | {m}))

    def wait(self, state: State) -> State:
        """Time passes, by a tick."""
        clients = []
        for c, one in enumerate(state.clients):
            said = tuple(map(self._aged, one.said))
            clients.append(self._judged(one._replace(said=said, lease=max(0, one.lease - 1)), c))
        masters = tuple(map(self._aged, state.masters))
        late = any(one.phase == "works" and not masters[m][c] for c, one in enumerate(clients) for m in self.lists[c])
        return State(masters, tuple(clients), state.apart or late)

    def forget(self, state: State, m: int) -> State:
        """A master restarts without its memory, or somebody flushes it, when it has shown its lists to all whom they concern."""
        for c, left in enumerate(state.masters[m]):
            for o, other in enumerate(state.clients):
                if left and m in self.lists[o] and not compatible(self.lists[c], self.lists[o]):
                    self._must(other.phase == "gone" or other.said[m][c] >= left, "it was not shown")
        return state._replace(masters=put(state.masters, m, (0,) * len(self.lists)))

    def _aged(self, row: Row) -> Row:
        return tuple(max(0, left - 1) for left in row)

    def _judged(self, client: Client, c: int) -> Client:
        """What it knows has changed.  Who was out of touch for longer than its list is remembered begins anew; who gives way has lost its leases."""
        if client.phase != "works":
            return client
        if self.outnumbered(client, c):
            client = client._replace(lease=0)
        if len(self.recorded(client, c)) < majority(self.lists[c]):
            client = client._replace(phase="new", silent=frozenset())
        return client

    # -- the promises: None, or what is wrong --------------------------------------------------------

    def agreed(self, state: State) -> str | None:
        """Leases of two lists that do not go together are never valid at once, unless a master that could have told was out of reach."""
        valid = [c for c, one in enumerate(state.clients) if one.lease > 0]
        for c, o in combinations(valid, 2):
            if not compatible(self.lists[c], self.lists[o]) and not state.apart:
                return f"R34: {sorted(self.lists[c])} and {sorted(self.lists[o])} are in use at once"
        return None

    def found(self, state: State) -> str | None:
        """Of two that work one gives way, once both know what the masters say that they share: exactly one works on."""
        work = [c for c, one in enumerate(state.clients) if one.phase == "works"]
        for c, o in combinations(work, 2):
            both = self.lists[c] & self.lists[o]
            if compatible(self.lists[c], self.lists[o]) or not both:
                continue
            if not all(self._up_to_date(state, one, m) for one in (c, o) for m in both):
                continue
            if not any(state.masters[m][one] for m in both for one in (c, o)):
                continue
            way = [self.gives_way(state.clients[one], one) for one in (c, o)]
            if way[0] == way[1]:
                which = "both go on" if not way[0] else "both give way"
                return f"R34: {sorted(self.lists[c])} and {sorted(self.lists[o])} were found, and {which}"
        return None

    def _up_to_date(self, state: State, c: int, m: int) -> bool:
        row, said = state.masters[m], state.clients[c].said[m]
        return all((row[o] > 0) == (said[o] > 0) for o in (c, *self.against(row, c), *self.against(said, c)))

    # ------------------------------------------------------------------------------------------------

    def _with(self, state: State, c: int, client: Client) -> State:
        return state._replace(clients=put(state.clients, c, client))

    def _must(self, allowed: bool, why: str) -> None:
        if not allowed:
            raise Forbidden("R34", why)
