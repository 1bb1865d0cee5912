"""The plan: from one seed, which fault strikes what, from when until when.  Pure: no clock, no server.

The plan does not know whether masters are processes here or containers, nor which client holds what.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from .faults import FAULTS, MOVES, SLEW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .faults import Fault
    from .settings import Settings

# A client and a master, both counted from 1.
Link: TypeAlias = tuple[int, int]
Way: TypeAlias = Literal["both", "requests", "replies"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault: ``at`` and ``until`` are seconds from the beginning of the run.

    ``settled``: when what it did is over.  That is ``until``, but for masters that were restarted: they
    vote again only after their quarantine (R21), and are healed when they do.

    ``in_turn``: it begins when the one before has settled, however long that takes there.
    """

    fault: str
    at: float
    until: float
    settled: float
    masters: tuple[int, ...] = ()
    clients: tuple[int, ...] = ()
    uses: tuple[int, ...] = ()  # the masters that these clients have then
    links: tuple[Link, ...] = ()  # those that are cut
    way: Way = "both"
    seconds: float = 0.0  # by how much: clocks jump, or gain in each second, answers are late

    @property
    def in_turn(self) -> bool:
        return self.fault in ("roll", *MOVES)

    def moved(self, by: float) -> Strike:
        return replace(self, at=self.at + by, until=self.until + by, settled=self.settled + by)


# Before the first fault, in TTLs: everybody shall have had a lock once.
_QUIET: Final = 0.4
# Between two faults of one lane, in TTLs.
_PAUSE: Final = (0.1, 0.5)
# So often a fault looks for somebody who is not struck yet, before it is left out.
_TRIES: Final = 10
# How many masters a fault strikes, and how often.
_EXTENT: Final = (("one", 4), ("minority", 3), ("majority", 2), ("all", 1))


def plan(settings: Settings) -> tuple[Strike, ...]:
    """All strikes, in the order in which they begin.  The same settings give the same ones.

    Within `Settings.duration` all of them have struck and been healed, `Strike.settled` apart.  Two that
    overlap do not strike the same master, and not the same client.
    """
    planner = _Planner(settings)
    return tuple(sorted(planner.strikes(), key=lambda strike: (strike.at, strike.until)))


def left_out(settings: Settings) -> tuple[str, ...]:
    """The faults that never strike: there is no time for them, or nothing that they could strike."""
    planned = {strike.fault for strike in plan(settings)}
    return tuple(fault for fault in settings.faults if fault not in planned)


class _Planner:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._random = random.Random(f"plan {settings.seed}")
        # What is struck, and from when until when.
        self._busy: dict[tuple[str, int], list[tuple[float, float]]] = {}
        self._masters = range(1, settings.masters + 1)
        self._clients = range(1, settings.clients + 1)
        self._grown = len(settings.first_list)
        # Those that are wrong about time, or lose keys, without having been restarted.
        minority = len(self._masters) - self._majority
        self._wrong = tuple(sorted(random.Random(f"wrong {settings.seed}").sample(self._masters, minority)))

    def strikes(self) -> Iterator[Strike]:
        faults = [fault for fault in self._settings.faults if fault != "slewed"]
        if len(faults) < len(self._settings.faults):
            lasts = self._random.uniform(*FAULTS["slewed"].lasts)
            first = self._on_masters("slewed", 0.0, min(self._settings.ttl * lasts, self._settings.duration))
            self._free(first)
            yield from first
        for _ in range(self._settings.lanes if faults else 0):
            yield from self._lane(faults)

    def _lane(self, faults: Sequence[str]) -> Iterator[Strike]:
        ttl, end = self._settings.ttl, self._settings.duration
        at = ttl * (_QUIET + self._random.uniform(*_PAUSE))
        at = min(at, end / 4)
        bag: list[str] = []
        while True:
            if not bag:  # every fault once, in some order, before any comes again
                bag = list(faults)
                self._random.shuffle(bag)
            fault = FAULTS[bag.pop()]
            until = min(at + ttl * self._random.uniform(*fault.lasts), end)
            if until <= at:
                return
            for _ in range(_TRIES):
                strikes = list(self._of(fault, at, until))
                if self._free(strikes):
                    yield from strikes
                    if strikes[-1].in_turn:
                        until = strikes[-1].settled
                    break
            at = until + ttl * self._random.uniform(*_PAUSE)
            if at >= end - ttl * fault.lasts[0]:
                return

    def _free(self, strikes: Sequence[Strike]) -> bool:
        """Whether there is something to be struck, and nothing else is done to it meanwhile; that is taken note of then."""
        spans = {what: (strikes[0].at, max(one.settled for one in strikes)) for one in strikes for what in _struck(one)}
        for what, (begin, end) in spans.items():
            if any(begin < other_end and other_begin < end for other_begin, other_end in self._busy.get(what, ())):
                return False
        for what, span in spans.items():
            self._busy.setdefault(what, []).append(span)
        return bool(spans)  # a ring of two masters cuts no link, for example

    # -- what is struck --------------------------------------------------------------------------------

    def _of(self, fault: Fault, at: float, until: float) -> Iterable[Strike]:
        if fault.kind == "master":
            return self._on_masters(fault.name, at, until)
        if fault.name in MOVES:
            return self._moved(fault, at, until)
        if fault.kind == "client":
            return [self._on_clients(fault.name, at, until)]
        return self._on_links(fault.name, at, until)

    def _on_masters(self, name: str, at: float, until: float) -> list[Strike]:
        if name == "roll":
            return list(self._rolled(at, until))
        masters = self._wrong if name in ("liar", "swing", "evict") else self._some_masters()
        settled, seconds = until, 0.0
        if name in ("kill", "forget"):
            settled += self._settings.quarantine
        elif name == "clock":
            # Enough of them that all of a lease's keys may be gone at once.
            masters = tuple(
                sorted(self._random.sample(self._masters, self._random.randint(self._majority, len(self._masters))))
            )
            seconds = self._settings.ttl * self._random.uniform(1.1, 2.0)
        elif name in ("slew", "slewed"):
            masters, seconds = tuple(sorted(self._random.sample(self._masters, self._majority))), SLEW
            if name == "slewed":  # until it has been measured to be right, and for max_ttl (R43)
                settled += 2 * self._settings.longest_ttl + 1.0
        elif name == "liar":
            seconds = self._settings.ttl * self._random.uniform(0.4, 2.0) * self._random.choice((-1, 1))
        elif name == "slow":
            seconds = self._settings.node_timeout * self._random.uniform(0.3, 1.5)
        elif name == "strobe":
            seconds = 0.4 * (self._settings.ttl * self._settings.drift_factor + 0.002)
        elif name == "swing":
            seconds = self._settings.ttl * self._random.uniform(0.4, 2.0)
        strike = Strike(fault=name, at=at, until=until, settled=settled, masters=masters, seconds=seconds)
        return list(self._repeated(strike, until)) if name in ("strobe", "swing") else [strike]

    def _rolled(self, at: float, until: float) -> Iterator[Strike]:
        """All masters in some order, each when the one before votes again; as many as there is time for."""
        ttl, end = self._settings.ttl, self._settings.duration
        shortest, longest = FAULTS["roll"].lasts
        for master in self._random.sample(self._masters, len(self._masters)):
            if at >= end - ttl * shortest:
                return
            # Without a quarantine it needs time to be given its keys back, which every renewal does (R14, R15).
            settled = until + max(self._settings.quarantine, ttl)
            yield Strike(fault="roll", at=at, until=until, settled=settled, masters=(master,))
            at = settled + ttl * self._random.uniform(*_PAUSE)
            until = min(at + ttl * self._random.uniform(shortest, longest), end)

    def _moved(self, fault: Fault, at: float, until: float) -> Iterator[Strike]:
        """Each half of the clients gets one list after the other (R34): as many of them as there is time for."""
        ttl, end = self._settings.ttl, self._settings.duration
        shortest, longest = fault.lasts
        for half, uses, waits in self._early_moves() if fault.name == "early" else self._moves(fault.name):
            if at >= end - ttl * shortest:
                return
            # A list of clients that were killed counts for a while. A waiter waits until it does not.
            gone = 2 * self._settings.longest_ttl if waits else 0.0
            settled = until + gone + ttl
            yield Strike(fault=fault.name, at=at, until=until, settled=settled, clients=half, uses=uses)
            at = settled
            until = min(at + ttl * self._random.uniform(shortest, longest), end)

    def _moves(self, fault: str) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], bool]]:
        """Which clients get which list, and whether the next step waits until the list before is gone.

        To grow waits for `redlock-check --plan`, however long that takes: see `chaos.growth`.
        """
        halves = self._halves_of_clients()
        for uses in self._longer_lists() if fault == "grow" else self._lists():
            for half in halves:
                yield half, uses, half is halves[-1] and fault == "move"

    def _early_moves(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], bool]]:
        """The first half skips a list, and is refused until the other one has had that."""
        one, *others = self._halves_of_clients()
        lists = self._lists()
        for other in others:  # there is none where there is one client
            for skipped, uses in zip(lists, lists, strict=True):
                yield one, uses, True
                yield other, skipped, True
                yield other, uses, True

    def _lists(self) -> Iterator[tuple[int, ...]]:
        """One master comes and one goes, in turn, and in a ring."""
        uses, masters = self._settings.first_list, len(self._masters)
        size = len(uses)
        while size < masters:
            uses = uses[1:] if len(uses) > size else (*uses, uses[-1] % masters + 1)
            yield uses

    def _longer_lists(self) -> Iterator[tuple[int, ...]]:
        """One master comes after the other, until there is none that could."""
        while self._grown < len(self._masters):
            self._grown += 1
            yield tuple(range(1, self._grown + 1))

    def _halves_of_clients(self) -> list[tuple[int, ...]]:
        return [half for half in (tuple(self._clients[::2]), tuple(self._clients[1::2])) if half]

    def _on_clients(self, name: str, at: float, until: float) -> Strike:
        most = max(1, len(self._clients) // 2)
        clients = tuple(sorted(self._random.sample(self._clients, self._random.randint(1, most))))
        # About as long as a lease: much more, and a client that goes by this clock would merely hang.
        seconds = (
            self._random.choice((-1, 1)) * self._random.uniform(0.4, 1.5) * self._settings.ttl
            if name == "wall"
            else 0.0
        )
        return Strike(fault=name, at=at, until=until, settled=until, clients=clients, seconds=seconds)

    def _on_links(self, name: str, at: float, until: float) -> list[Strike]:
        way: Way = "both"
        if name == "kleppmann":
            return list(self._story(at, until))
        if name == "one":
            links = self._one_cut_off()
        elif name == "oneway":
            clients = self._random.sample(self._clients, self._random.randint(1, len(self._clients)))
            links = {(client, master) for client in clients for master in self._some_masters()}
            way = self._random.choice(("requests", "replies"))
        elif name == "minority":
            masters = self._random.sample(self._masters, len(self._masters) - self._majority)
            links = {(client, master) for client in self._clients for master in masters}
        elif name == "halves":
            links = self._halves()
        elif name == "ring":
            links = self._ring()
        else:
            master = self._random.choice(self._masters)
            links = {(client, master) for client in self._clients}
        strike = Strike(fault=name, at=at, until=until, settled=until, links=tuple(sorted(links)), way=way)
        return list(self._repeated(strike, until)) if name == "flap" else [strike]

    def _story(self, at: float, until: float) -> Iterator[Strike]:
        """Every other client reaches the first masters, the others reach the last ones: one of them all reach, if any."""
        need, size, ttl = self._majority, len(self._masters), self._settings.ttl
        first, last = set(range(1, need + 1)), set(range(size - need + 1, size + 1))
        cut = {(c, m) for c in self._clients for m in self._masters if m not in (first if c % 2 else last)}
        yield Strike(fault="kleppmann", at=at, until=until, settled=until, links=tuple(sorted(cut)))
        at += ttl
        while at + 1.5 * ttl < until and first & last:
            ends = at + ttl
            yield Strike(
                fault="kleppmann",
                at=at,
                until=ends,
                settled=ends,
                masters=tuple(sorted(first & last)),
                seconds=1.5 * ttl,
            )
            at = ends + ttl * self._random.uniform(1.0, 1.5)

    def _repeated(self, strike: Strike, until: float) -> Iterator[Strike]:
        """``strike`` again and again, each for a moment."""
        at = strike.at
        while at < until:
            ends = min(until, at + self._random.uniform(0.05, 0.2) * self._settings.ttl)
            yield Strike(
                fault=strike.fault, at=at, until=ends, settled=ends, masters=strike.masters, links=strike.links,
                way=strike.way, seconds=strike.seconds * self._random.choice((-1, 1)),
            )  # fmt: skip
            at = ends + self._random.uniform(0.02, 0.1) * self._settings.ttl

    def _one_cut_off(self) -> set[Link]:
        if self._random.random() < 0.5:  # noqa: PLR2004 - one of two
            master = self._random.choice(self._masters)
            return {(client, master) for client in self._clients}
        client = self._random.choice(self._clients)
        return {(client, master) for master in self._masters}

    def _halves(self) -> set[Link]:
        """The first half has a minority of the masters, or with an even number of them a half."""
        clients = set(self._random.sample(self._clients, len(self._clients) // 2))
        masters = set(self._random.sample(self._masters, len(self._masters) // 2))
        return {(c, m) for c in self._clients for m in self._masters if (c in clients) != (m in masters)}

    def _ring(self) -> set[Link]:
        """Each client is left with a majority, and no two neighbours with the same."""
        size = len(self._masters)
        order = self._random.sample(self._masters, size)
        reached = {(c, order[(c + step) % size]) for c in self._clients for step in range(self._majority)}
        return {(c, m) for c in self._clients for m in self._masters} - reached

    def _some_masters(self) -> tuple[int, ...]:
        words = [word for word, often in _EXTENT for _ in range(often)]
        size = {
            "one": 1,
            "minority": len(self._masters) - self._majority,
            "majority": self._majority,
            "all": len(self._masters),
        }[self._random.choice(words)]
        return tuple(sorted(self._random.sample(self._masters, max(1, size))))

    @property
    def _majority(self) -> int:
        return len(self._masters) // 2 + 1


def _struck(strike: Strike) -> Iterator[tuple[str, int]]:
    yield from (("master", master) for master in strike.masters)
    yield from (("client", client) for client in strike.clients)
    # Links of a whole cluster are one thing: who is cut off from whom shall be what one strike says.
    if strike.links:
        yield "links", 0
