"""What is measured, and by which event: the same for every system of metrics.

Names are those of OpenTelemetry, with dots and without unit. For Prometheus they get underscores, ``_seconds`` and
``_total``. OpenTelemetry's own exporter for Prometheus changes them in the same way.

The name of a lock becomes a label only through a function of the user. There may be a million names, and each value of
a label is a time series for ever. Masters are labels: the configuration limits their number.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redlock import (
    ConfigurationError,
    LeaseExtended,
    LeaseLost,
    LockAcquired,
    LockRefused,
    LockReleased,
    MasterClock,
    MasterDown,
    MastersAgree,
    MastersDisagree,
    MasterUp,
    QuorumBack,
    QuorumLost,
    WaitBegan,
    WaitEnded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock import Event, Vote

_SWEEP = 10.0  # seconds
OTHER = "other"  # the label of all names that have no label of their own
_log = logging.getLogger("redlock")


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that only grows.

    Attributes:
        unit: what is counted; ``s`` for seconds.
        labels: its labels, without the label of the lock.
        by_lock: whether it has the label of the lock, if the user wants one.
        values: all values of its label, if it has one label and they are known.
    """

    name: str
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    by_lock: bool = True
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution of seconds. ``bounds`` are the upper bounds of its buckets; the rest is as in `Counter`."""

    name: str
    text: str
    bounds: tuple[float, ...]
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


# From a round trip on loopback to the longest `node_timeout` that makes sense.
_ROUND = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_WAIT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_HOLD = (0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

ACQUIRE = Histogram(
    "redlock.acquire.duration",
    "Time from the call of acquire to its answer, waiting included; "
    "outcome: acquired, held, crowded, unreachable, slow or unusable",
    _WAIT,
    ("outcome",),
    values=("acquired", "held", "crowded", "unreachable", "slow", "unusable"),
)
GRANT = Histogram(
    "redlock.grant.duration", "Time from sending a request for a lock until a majority had granted it", _ROUND
)
HOLD = Histogram("redlock.hold.duration", "Time for which a lock was held, until its release or its loss", _HOLD)
ATTEMPTS = Counter("redlock.attempts", "attempt", "Requests for a lock; more than acquires where there is contention")
EXTENSIONS = Counter("redlock.extensions", "extension", "Leases that were extended, by holder or renewer")
LOSSES = Counter(
    "redlock.losses",
    "loss",
    "Leases that ended before their holder was done; reason: expired, taken, unreachable or max_hold",
    ("reason",),
    values=("expired", "taken", "unreachable", "max_hold"),
)
BARE = Counter(
    "redlock.bare_majority",
    "s",
    "Time for which leases were held while no more than a bare majority of masters was known to have their keys",
)
GUARD = Counter(
    "redlock.guard", "s", "Time for which names stay taken after a loss, for what the holder has under way (guard=)"
)
VOTES = Counter(
    "redlock.votes",
    "vote",
    "What masters said in the round that ended an acquire or an extension; pending: not waited for",
    ("master", "outcome"),
    by_lock=False,
)
QUORUM_LOSSES = Counter(
    "redlock.quorum.losses", "loss", "Times that too few masters took part, after a time when enough did", by_lock=False
)
QUORUM_RECOVERIES = Counter(
    "redlock.quorum.recoveries", "recovery", "Times that enough masters took part again", by_lock=False
)

DISAGREEMENTS = Counter(
    "redlock.fleet.disagreements",
    "disagreement",
    "Times that clients were found whose masters are incompatible with ours; outcome: refused or warned",
    ("outcome",),
    by_lock=False,
    values=("refused", "warned"),
)


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge: the present state of this process. ``unit``: what is counted."""

    name: str
    unit: str
    text: str


WAITERS = Gauge("redlock.waiters", "waiter", "Acquires of this process that wait for a lock now")
LEASES = Gauge("redlock.leases", "lease", "Leases that this process holds now")

HISTOGRAMS = (ACQUIRE, GRANT, HOLD)
COUNTERS = (ATTEMPTS, EXTENSIONS, LOSSES, BARE, GUARD, VOTES, QUORUM_LOSSES, QUORUM_RECOVERIES, DISAGREEMENTS)


class Observer(ABC):
    """Makes measurements of events. A subclass passes them to a system of metrics.

    May be called from any thread. A call waits at most while another thread counts.
    """

    def __init__(self, label: Callable[[str], str] | None, max_labels: int) -> None:
        self._lock_label = None if label is None else Labels(label, max_labels)
        self._going_on = threading.RLock()
        self._waits: dict[int, float] = {}  # by its number, when each began: in their order
        self._leases: dict[str, float] = {}  # by its token, when each ends unless it is extended
        self._swept = 0.0

    def __call__(self, event: Event) -> None:  # noqa: C901, PLR0915 - one case for each kind of event
        match event:
            case LockAcquired():
                lock = self._lock_of(event.name)
                self._holds(event.token, event.remaining)
                self._observe(ACQUIRE, event.seconds, lock, "acquired")
                self._observe(GRANT, max((vote.latency or 0.0 for vote in event.votes), default=0.0), lock)
                self._count(ATTEMPTS, event.attempts, lock)
                self._votes(event.votes)
            case LockRefused():
                lock = self._lock_of(event.name)
                self._observe(ACQUIRE, event.seconds, lock, event.kind)
                if event.attempts:  # 0: it only stood in line in this process, and asked no master
                    self._count(ATTEMPTS, event.attempts, lock)
                    self._votes(event.votes)
            case WaitBegan():
                with self._going_on:
                    self._waits[event.waiter] = time.monotonic()
                    self._changed()
            case WaitEnded():
                with self._going_on:
                    self._waits.pop(event.waiter, None)
                    self._changed()
            case LeaseExtended():
                self._holds(event.token, event.remaining)
                lock = self._lock_of(event.name)
                self._count(EXTENSIONS, 1, lock)
                self._count(BARE, event.bare_majority, lock)
                self._votes(event.votes)
            case LockReleased() | LeaseLost():
                self._holds_no_more(event.token)
                lock = self._lock_of(event.name)
                self._observe(HOLD, event.held, lock)
                self._count(BARE, event.bare_majority, lock)
                if isinstance(event, LeaseLost):
                    self._count(LOSSES, 1, lock, event.reason)
                    self._count(GUARD, event.guard, lock)
            case MasterUp():
                self._master(event.master, up=True, quarantined=event.quarantined)
            case MasterClock():
                self._master(event.master, up=True, quarantined=event.quarantined)
                self._clock(event.master, event.rate)
            case MasterDown():
                self._master(event.master, up=False, quarantined=0.0)
            case QuorumLost():
                self._count(QUORUM_LOSSES, 1, ())
            case QuorumBack():
                self._count(QUORUM_RECOVERIES, 1, ())
            case MastersDisagree():
                self._count(DISAGREEMENTS, 1, (), "refused" if event.refused else "warned")
            case MastersAgree():
                pass

    def _holds(self, token: str, remaining: float) -> None:
        now = time.monotonic()
        with self._going_on:
            self._leases[token] = now + remaining
            if now > self._swept + _SWEEP:  # see `_held`
                self._swept = now
                self._leases = {token: end for token, end in self._leases.items() if end > now}
            self._changed()

    def _holds_no_more(self, token: str) -> None:
        with self._going_on:
            self._leases.pop(token, None)
            self._changed()

    def _held(self) -> int:
        """How many leases are valid. A lease that is held when its masters are closed has no end event."""
        now = time.monotonic()
        with self._going_on:
            return sum(end > now for end in self._leases.values())

    def _oldest(self) -> float:
        """For how many seconds the oldest waiter has waited; 0 without waiters."""
        with self._going_on:
            began = next(iter(self._waits.values()), None)
        return 0.0 if began is None else time.monotonic() - began

    def _lock_of(self, name: str) -> tuple[str, ...]:
        return () if self._lock_label is None else (self._lock_label(name),)

    def _votes(self, votes: tuple[Vote, ...]) -> None:
        for vote in votes:
            self._count(VOTES, 1, (), vote.master, vote.outcome)

    @abstractmethod
    def _count(self, what: Counter, amount: float, lock: tuple[str, ...], *labels: str) -> None:
        """Add to a counter. ``lock`` is empty or the lock's label. ``labels`` are in the order of ``what.labels``."""

    @abstractmethod
    def _observe(self, what: Histogram, seconds: float, lock: tuple[str, ...], *labels: str) -> None:
        """Add ``seconds`` to a distribution. ``lock`` and ``labels`` are as in `_count`."""

    @abstractmethod
    def _changed(self) -> None:
        """There are more or fewer waiters, or leases, than before. No other thread changes them in between."""

    @abstractmethod
    def _master(self, master: str, *, up: bool, quarantined: float) -> None:
        """Note whether a master is ``up``, and for how many seconds its vote does not count yet.

        ``quarantined`` is infinite if its vote does not count before something is changed.
        """

    @abstractmethod
    def _clock(self, master: str, rate: float) -> None:
        """Note by how much the clock of a master runs faster than ours (R43); negative: slower."""


class Labels:
    """Finds the label for the name of a lock. There are at most ``most`` labels; all further names get `OTHER`."""

    def __init__(self, label: Callable[[str], str], most: object) -> None:
        if not callable(label):
            raise ConfigurationError(f"label={label!r}: allowed is a function from the name of a lock to a label")
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise ConfigurationError(f"max_labels={most!r}: allowed is a whole number, 1 or more")
        self._label = label
        self._most = most
        self._known: set[str] = set()
        self._told: set[str] = set()
        self._adding = threading.RLock()

    def __call__(self, name: str) -> str:
        try:
            label = self._label(name)
        except Exception:  # noqa: BLE001 - of a user's function; a metric must not break what it measures
            self._tell("the label function of an observer raised; that lock is counted as %r", error=True)
            return OTHER
        if not isinstance(label, str):
            self._tell(f"the label function of an observer returned {label!r:.80}, which is no str; counted as %r")
            return OTHER
        if label not in self._known:
            label = label.encode("utf-8", "replace").decode()  # what is not UTF-8 would break the whole page of metrics
            with self._adding:
                if label not in self._known and len(self._known) >= self._most:
                    full = True
                else:
                    full = False
                    self._known.add(label)
            if full:
                self._tell(f"an observer has {self._most} labels for locks; from now on new ones are counted as %r")
                return OTHER
        return label

    def _tell(self, text: str, *, error: bool = False) -> None:
        """Log each kind of warning once. Else every event would repeat it."""
        kind = text[:50]
        if kind not in self._told:
            self._told.add(kind)
            _log.warning(text, OTHER, exc_info=error)
