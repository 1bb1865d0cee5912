"""The nemesis: carries out a plan, heals everything, and writes down what it did and when."""

from __future__ import annotations

import heapq
import time
from typing import TYPE_CHECKING, Final

from . import growth, names
from .faults import MOVES
from .history import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .backends.rig import Rig, State
    from .cast import Cast
    from .history import Writer
    from .plan import Strike

_LOOK: Final = 0.2  # seconds between two looks at whether everybody is still there


class Nemesis:
    """``tell`` is given a line for people whenever something was done."""

    def __init__(self, rig: Rig, cast: Cast, record: Writer, tell: Callable[[str], object]) -> None:
        self._rig = rig
        self._cast = cast
        self._record = record
        self._tell = tell
        self.began = now()
        self._list: tuple[int, ...] = ()  # the masters that the last ones who grew were given
        self._turn = 0.0  # seconds from the beginning, when the next one `in_turn` may begin
        # (when, number, what to do): the number keeps those of one moment in order.
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []

    def carry_out(self, plan: Sequence[Strike], begin: Callable[[], object] = bool) -> None:
        """Returns when everything is healed; on the way out with an exception it heals what it can.

        ``begin``: has the clients come, when that has struck which comes before them.
        """
        self.began, self._turn = now(), 0.0
        agenda = self._agenda = []
        struck: dict[int, Strike] = {}
        for number, strike in enumerate(plan):
            agenda.append((strike.at, 2 * number, self._later(self._strike, number, strike, struck)))
        heapq.heapify(agenda)
        try:
            while agenda and agenda[0][0] <= 0.0:
                heapq.heappop(agenda)[2]()
            begin()
            self.began = now()
            while agenda:
                at, _, do = heapq.heappop(agenda)
                self._sleep_until(self.began + at)
                do()
        finally:
            for number, strike in list(struck.items()):
                self._heal(number, strike, struck)

    def _later(
        self,
        do: Callable[[int, Strike, dict[int, Strike]], None],
        number: int,
        strike: Strike,
        struck: dict[int, Strike],
    ) -> Callable[[], None]:
        return lambda: do(number, strike, struck)

    def _push(self, at: float, number: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at, number, do))

    def _sleep_until(self, t: float) -> None:
        while (left := t - now()) > 0:
            self._cast.check()
            time.sleep(min(left, _LOOK))

    # -- what is written down --------------------------------------------------------------------------

    def _strike(self, number: int, strike: Strike, struck: dict[int, Strike]) -> None:
        if strike.in_turn and strike.at < self._turn:
            strike = strike.moved(self._turn - strike.at)
            self._push(strike.at, 2 * number, self._later(self._strike, number, strike, struck))
            return
        if strike.fault == "grow" and not self._may_grow(strike):
            self._turn = now() - self.began + _LOOK  # so that no other strike goes first
            strike = strike.moved(self._turn - strike.at)
            self._push(strike.at, 2 * number, self._later(self._strike, number, strike, struck))
            return
        if strike.in_turn:
            self._turn = strike.settled
        self._push(strike.until, 2 * number + 1, self._later(self._heal, number, strike, struck))
        struck[number] = strike
        # Before it is in force: whoever judges may take it to be longer than it was, not shorter.
        op = self._op(strike)
        called = None if op == strike.fault else strike.fault
        self._record.write(op, "invoke", target=self._targets(strike), fault=called, detail=_detail(strike))
        self._say(f"{strike.fault:8} {self._shown(strike)}")
        self.strike(strike)

    def _may_grow(self, strike: Strike) -> bool:
        """The first half waits for `redlock-check --plan`; the second has the same list."""
        settings = self._rig.settings
        used = self._list or settings.first_list
        if strike.uses != used:
            if not growth.may_begin(self._rig.urls(1), used, strike.uses, settings.longest_ttl):
                return False
            self._say(f"{'':8} redlock-check --plan: now")
            self._list = strike.uses
        return True

    def _heal(self, number: int, strike: Strike, struck: dict[int, Strike]) -> None:
        del struck[number]
        self.heal(strike)
        away = strike.settled - strike.until
        if away > 0:
            what = "back, may vote" if strike.masters else f"use {_list(strike.uses)}, and the next may come"
            self._say(f"{'':8} {self._shown(strike)}: {what} in {away:.1f} s")
            # From now: to start a container takes a while.
            votes_at = now() - self.began + away
            if strike.in_turn:
                self._turn = votes_at
            self._push(votes_at, 2 * number + 1, self._later(self._settled, number, strike, struck))
        else:
            self._settled(number, strike, struck)

    def _settled(self, number: int, strike: Strike, struck: dict[int, Strike]) -> None:  # noqa: ARG002
        if strike.fault in _KILLS:
            # Those that were killed never come back.  That others have come in their place is a heal.
            self._cast.wait_until_ready()
            self._record.write("replace", "ok", target=self._targets(strike))
        else:
            self._record.write(self._op(strike), "ok", target=self._targets(strike))
        if strike.until - strike.at > _LOOK:
            self._say(f"{'':8} {self._shown(strike)}: healed")

    def _op(self, strike: Strike) -> str:
        return "kill" if strike.fault in _KILLS else strike.fault

    def _targets(self, strike: Strike) -> list[str]:
        return [*(self._cast.now_on(seat).name for seat in strike.clients), *names.struck(strike)]

    def _shown(self, strike: Strike) -> str:
        if strike.links:
            cut: dict[tuple[int, ...], list[int]] = {}
            for client in sorted({client for client, _ in strike.links}):
                cut.setdefault(tuple(m for c, m in strike.links if c == client), []).append(client)
            ways = {"both": "x", "requests": "-x", "replies": "x-"}
            return "  ".join(f"{_list(cs)} {ways[strike.way]} {_list(ms)}" for ms, cs in cut.items())
        return ", ".join(self._targets(strike))

    def _say(self, what: str) -> None:
        self._tell(f"{now() - self.began:6.1f} s  {what}")

    # -- what is done ----------------------------------------------------------------------------------

    def strike(self, strike: Strike) -> None:
        """Do it; nothing is written down."""
        _STRIKES[strike.fault](self, strike)

    def heal(self, strike: Strike) -> None:
        _HEALS[strike.fault](self, strike)

    def _all_links(self, strike: Strike) -> Iterable[tuple[int, int]]:
        return [link for link in self._rig.links if link[1] in strike.masters]

    def disturb(self, strike: Strike, *states: State) -> None:
        self._rig.disturb(strike.links or self._all_links(strike), states, strike.seconds)

    def mend(self, strike: Strike, *states: State) -> None:
        self._rig.mend(strike.links or self._all_links(strike), states)

    def masters(self, strike: Strike, do: Callable[[Rig, int], object]) -> None:
        self._rig.each(strike.masters, lambda master: do(self._rig, master))

    def clients(self, strike: Strike, do: Callable[[Cast, int], object]) -> None:
        for seat in strike.clients:
            do(self._cast, seat)


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _detail(strike: Strike) -> dict[str, object] | None:
    if strike.links:
        return {"way": strike.way, "links": [list(link) for link in strike.links]}
    if strike.uses:
        return {"uses": list(strike.uses)}
    return {"seconds": round(strike.seconds, 6)} if strike.seconds else None


def _ways(strike: Strike) -> tuple[State, ...]:
    return ("requests", "replies") if strike.way == "both" else (strike.way,)


def _told(nemesis: Nemesis, strike: Strike) -> None:
    """Kleppmann's story: first the halves, then the clock that they share."""
    if strike.links:
        _cut(nemesis, strike)
    else:
        nemesis.masters(strike, lambda rig, master: rig.jump(master, strike.seconds))


def _untold(nemesis: Nemesis, strike: Strike) -> None:
    if strike.links:
        _join(nemesis, strike)
    else:
        nemesis.masters(strike, lambda rig, master: rig.jump(master, -strike.seconds))


def _nothing(nemesis: Nemesis, strike: Strike) -> None:
    """It is over by itself."""


def _cut(nemesis: Nemesis, strike: Strike) -> None:
    nemesis.disturb(strike, *_ways(strike))


def _join(nemesis: Nemesis, strike: Strike) -> None:
    nemesis.mend(strike, *_ways(strike))


_KILLS: Final = ("crash", *MOVES)
_LINK_FAULTS: Final = ("one", "oneway", "minority", "halves", "ring", "flap")

_STRIKES: Final[dict[str, Callable[[Nemesis, Strike], None]]] = {
    "kill": lambda n, s: n.masters(s, lambda rig, m: rig.kill(m)),
    "forget": lambda n, s: n.masters(s, lambda rig, m: rig.kill(m)),
    "roll": lambda n, s: n.masters(s, lambda rig, m: rig.kill(m)),
    "pause": lambda n, s: n.masters(s, lambda rig, m: rig.pause(m)),
    "strobe": lambda n, s: n.masters(s, lambda rig, m: rig.jump(m, s.seconds)),
    "clock": lambda n, s: n.masters(s, lambda rig, m: rig.jump(m, s.seconds)),
    **dict.fromkeys(("liar", "swing"), lambda n, s: n.masters(s, lambda rig, m: rig.jump(m, s.seconds))),
    **dict.fromkeys(("slew", "slewed"), lambda n, s: n.masters(s, lambda rig, m: rig.slew(m, 1.0 + s.seconds))),
    "evict": lambda n, s: n.masters(s, lambda rig, m: rig.evict(m)),
    "memory": lambda n, s: n.masters(s, lambda rig, m: rig.fill_memory(m)),
    "disk": lambda n, s: n.masters(s, lambda rig, m: rig.fill_disk(m)),
    "flush": lambda n, s: n.masters(s, lambda rig, m: rig.flush(m)),
    "library": lambda n, s: n.masters(s, lambda rig, m: (rig.load(m), rig.unload(m))),
    "lose": lambda n, s: n.disturb(s, "lose"),
    "slow": lambda n, s: n.disturb(s, "slow"),
    "half": lambda n, s: n.disturb(s, "half"),
    **dict.fromkeys(_LINK_FAULTS, _cut),
    "kleppmann": _told,
    "stop": lambda n, s: n.clients(s, lambda cast, seat: cast.stop(seat)),
    **dict.fromkeys(_KILLS, lambda n, s: n.clients(s, lambda cast, seat: cast.kill(seat))),
    "wall": lambda n, s: n.clients(s, lambda cast, seat: cast.shift_wall_clock(seat, s.seconds)),
}

_HEALS: Final[dict[str, Callable[[Nemesis, Strike], None]]] = {
    "kill": lambda n, s: n.masters(s, lambda rig, m: rig.restart(m, keep_data=True)),
    "forget": lambda n, s: n.masters(s, lambda rig, m: rig.restart(m, keep_data=False)),
    "roll": lambda n, s: n.masters(s, lambda rig, m: rig.restart(m, keep_data=False)),
    "pause": lambda n, s: n.masters(s, lambda rig, m: rig.resume(m)),
    "strobe": lambda n, s: n.masters(s, lambda rig, m: rig.jump(m, -s.seconds)),
    "clock": lambda n, s: n.masters(s, lambda rig, m: rig.jump(m, -s.seconds)),
    **dict.fromkeys(("liar", "swing"), lambda n, s: n.masters(s, lambda rig, m: rig.jump(m, -s.seconds))),
    **dict.fromkeys(("slew", "slewed"), lambda n, s: n.masters(s, lambda rig, m: rig.slew(m, 1.0))),
    "evict": _nothing,
    "memory": lambda n, s: n.masters(s, lambda rig, m: rig.free_memory(m)),
    "disk": lambda n, s: n.masters(s, lambda rig, m: rig.free_disk(m)),
    "flush": _nothing,
    "library": lambda n, s: n.masters(s, lambda rig, m: rig.load(m)),
    "lose": lambda n, s: n.mend(s, "lose"),
    "slow": lambda n, s: n.mend(s, "slow"),
    "half": lambda n, s: n.mend(s, "half"),
    **dict.fromkeys(_LINK_FAULTS, _join),
    "kleppmann": _untold,
    "stop": lambda n, s: n.clients(s, lambda cast, seat: cast.resume(seat)),
    **dict.fromkeys(_KILLS, lambda n, s: n.clients(s, lambda cast, seat: cast.replace(seat, s.uses))),
    "wall": lambda n, s: n.clients(s, lambda cast, seat: cast.shift_wall_clock(seat, -s.seconds)),
}
