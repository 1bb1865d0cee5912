"""A list of the locks that are held, piece by piece: first the keys of each master, then a look at each name (R29).

A name that is held has a key on a majority, so it is found as soon as a majority was searched.  Only the names that
were found are kept: a hundred thousand take some 15 MB.  To report a name only from the first master that shows it
would miss a lock whose key comes to this master after it was searched (R14).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redlock._core import readings, wire
from redlock._core.effects import Op, sleep
from redlock._core.inspect import LockStatus, inspect, inspect_many, known
from redlock._core.kernel.quorum import Tally
from redlock._core.kernel.rounds import GRANTED, Round
from redlock.errors import Outcome, QuorumUnreachable

if TYPE_CHECKING:
    from redlock._core.settings import MastersSettings

_TOGETHER = 64  # names that one request looks at; a master is busy with them for a quarter of a millisecond
_COUNT = 500  # keys; a master is busy with them for a quarter of a millisecond
_TRIES = 3
_FIRST = "0"  # the cursor of the first step, and of the end


class ScanStep(Round):
    """One step on one master."""

    _until = "complete"
    found: tuple[str, list[bytes]] | None = None

    def read(self, master: int, value: Any) -> tuple[Outcome, str]:  # noqa: ARG002 - only one is asked
        self.found = wire.read_scan(value)
        return GRANTED


class Listing:
    """Where a list of locks has got to."""

    def __init__(self, settings: MastersSettings, prefix: str, match: str) -> None:
        self._settings = settings
        self._prefix = prefix
        self._pattern = wire.literal(prefix) + match
        self._seen: set[str] = set()
        self._names: deque[str] = deque()  # names that were found, and not looked at yet
        self._searched = Tally(settings.masters)  # masters that were searched to their end, or given up
        self._master = 0
        self._cursor = _FIRST

    def more(self) -> Op[list[LockStatus] | None]:
        """The next locks, perhaps none; None at the end.  Raises QuorumUnreachable if too few masters answered."""
        while len(self._names) < _TOGETHER and not self._searched.complete:
            yield from self._search()
        if not self._names:
            return None
        names = [self._names.popleft() for _ in range(min(_TOGETHER, len(self._names)))]
        found = []
        looked = yield from inspect_many(self._settings, names, self._prefix)
        for name, (status, tally) in zip(names, looked, strict=True):
            if readings.outage(tally):  # late, or a master that does not look at several names at once, as in a cluster
                status, tally = yield from inspect(self._settings, name, self._prefix + name)  # noqa: PLW2901
                if readings.outage(tally):
                    known(status, tally)
            if any(vote.outcome == "held" for vote in status.votes):
                found.append(status)
        return found

    def _search(self) -> Op[None]:
        call, master = wire.scan(self._cursor, self._pattern, _COUNT), self._master
        tries = 0
        while True:
            step = ScanStep(self._settings, call, to=frozenset((master,)))
            at = yield from step.ask()
            tries += 1
            if step.tally.outcome(master) != "timeout" or tries == _TRIES:
                break
            yield from sleep(at + self._settings.node_timeout, quiet=False)
        if step.found is not None:
            self._cursor, keys = step.found
            for key in keys:
                name = wire.name_of(self._prefix, key)
                if name is not None and name not in self._seen:
                    self._seen.add(name)
                    self._names.append(name)
            if self._cursor != _FIRST:
                return
        self._searched.inherit(step.tally, master)  # a master that may have forgotten locks (R21) is not searched
        if not self._searched.unreachable:
            self._master, self._cursor = master + 1, _FIRST
            return
        text, votes = f"cannot list the locks: {readings.explain(self._searched)}", self._searched.votes()
        if any(vote.reason.startswith("NOPERM") for vote in votes):
            text += "; to list locks, grant the user one more right: ACL SETUSER user +scan, on each master"
            votes = tuple(replace(it, reason=it.reason.replace("--acl prints", "--acl --held prints")) for it in votes)
        raise QuorumUnreachable(text, votes=votes)
