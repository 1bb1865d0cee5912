"""Three masters in three regions: what a lock costs, which `node_timeout`, and what happens when a region goes.

    python -m tools.far_away               shows it
    python -m tools.far_away --write       writes it into docs/howto/far-away.md

The masters are servers on this machine.  A relay stands between the client of each region and each master, and holds
the answers back for as long as a round trip takes between the two.  A region that is gone answers nothing and refuses
nothing, as behind a cut cable.  Takes a minute.  Nothing is left behind.
"""

from __future__ import annotations

import logging
import re
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chaos.backends.relay import Relay
from redlock import LockUnavailable, Masters
from redlock.testing import LocalMasters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chaos.backends.rig import State
    from chaos.plan import Link

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "far-away.md"
REGIONS: Final = "ABC"
ROUND_TRIPS: Final = {"AA": 1, "BB": 1, "CC": 1, "AB": 70, "BC": 90, "AC": 150}  # milliseconds
TTL: Final = 10.0
TIMES: Final = (0.05, 0.1, 0.25, 0.5)  # that are tried as `node_timeout`, seconds
ROUNDS: Final = 9
PAUSE: Final = 0.2


def round_trip(one: str, other: str) -> int:
    """Milliseconds from one region to the other and back."""
    return ROUND_TRIPS["".join(sorted(one + other))]


class World:
    """Three regions: each has a master, and a program that asks all masters from there.

    Regions are so many times ``farther`` away, and have so many times more time: a busy machine then matters less.
    """

    def __init__(self, servers: LocalMasters, farther: float) -> None:
        self.farther = farther
        self._relay = Relay()
        self._links: list[Link] = [(client, master) for client in range(3) for master in range(3)]
        self._ports = {link: self._relay.open(link, "127.0.0.1", 0, servers.ports[link[1]]) for link in self._links}
        self.gone()

    def gone(self, *regions: str) -> None:
        """From now on these answer nobody, not even their own clients."""
        cut: dict[State, float] = {"requests": 0.0, "replies": 0.0}
        self._relay.change(
            {link: self._late(link) | (cut if REGIONS[link[1]] in regions else {}) for link in self._links}
        )

    def _late(self, link: Link) -> dict[State, float]:
        return {"slow": self.farther * round_trip(REGIONS[link[0]], REGIONS[link[1]]) / 1000}

    def masters(self, region: str, node_timeout: float) -> Masters:
        client = REGIONS.index(region)
        named = {
            f"lock-{name.lower()}": f"redis://127.0.0.1:{self._ports[client, number]}"
            for number, name in enumerate(REGIONS)
        }
        return Masters(named, node_timeout=self.farther * node_timeout, restart_guard=False)


def costs(world: World, rounds: int) -> Iterator[str]:
    """What an acquire costs, from each region, with all regions and without each of them."""
    yield "acquire, milliseconds         all there   A is gone   B is gone   C is gone"
    with ExitStack() as stack:
        everybody = {region: stack.enter_context(world.masters(region, 0.5)) for region in REGIONS}
        for region, masters in everybody.items():
            figures = [measured(masters, region, rounds)]
            for other in REGIONS:
                world.gone(other)
                figures.append(measured(masters, region, rounds))
                world.gone()
                time.sleep(2 * PAUSE)  # what was held back arrives
            yield f"from {region}, which has a master{'':6}" + "".join(f"{figure:12.0f}" for figure in figures)


def measured(masters: Masters, region: str, rounds: int) -> float:
    took = []
    for _ in range(rounds):
        lock = masters.lock(f"far-from-{region}", ttl=TTL)
        began = time.monotonic()
        lock.acquire()
        took.append(1000 * (time.monotonic() - began))
        lock.release()
        time.sleep(PAUSE)
    return statistics.median(took)


def limits(world: World) -> Iterator[str]:
    """From A: with which `node_timeout` one attempt gets a lock."""
    yield "one attempt from A            all there   A is gone   A and B are gone"
    for node_timeout in TIMES:
        with world.masters("A", node_timeout) as masters:
            said = []
            for regions in ((), ("A",), ("A", "B")):
                measured_once(masters)
                world.gone(*regions)
                said.append(measured_once(masters))
                world.gone()
                time.sleep(2 * PAUSE)
            yield f"node_timeout={node_timeout:<5g}{'':10}{said[0]:>12}{said[1]:>12}{said[2]:>19}"


def measured_once(masters: Masters) -> str:
    began = time.monotonic()
    lock = masters.lock("limits", ttl=TTL)
    try:
        lease = lock.acquire(timeout=0)
    except LockUnavailable:
        return f"no, {1000 * (time.monotonic() - began):.0f} ms"
    took = 1000 * (time.monotonic() - began)
    assert lease is not None
    lock.release()
    time.sleep(2 * PAUSE)
    return f"{took:.0f} ms"


def renewals(world: World) -> Iterator[str]:
    """A lease that is held while a region goes."""
    with world.masters("A", 0.5) as masters:
        lock = masters.lock("held", ttl=3.0)
        with lock as lease:
            for region in "AB":
                world.gone(region)
                time.sleep(4.0)
                state = "valid" if lease.valid else "lost"
                left = f"{lease.remaining():.1f} s are left"
                yield f"a lease with ttl=3, four seconds after {region} went: {state}, {left}"
                world.gone()
                time.sleep(1.0)


def shown(rounds: int = ROUNDS, farther: float = 1.0) -> str:
    logging.getLogger("redlock").setLevel(logging.ERROR)  # that the quorum is gone is what is shown
    with LocalMasters(3, persistence="always") as servers:
        world = World(servers, farther)
        parts: Iterable[Iterator[str]] = (costs(world, rounds), limits(world), renewals(world))
        return "\n\n".join("\n".join(part) for part in parts) + "\n"


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--write"]):
        sys.exit(__doc__)
    said = shown()
    print(said, end="")
    if arguments:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            re.sub(r"(?<=<!-- run -->\n\n```text\n).*?(?=```)", lambda _: said, text, flags=re.DOTALL), encoding="utf-8"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
