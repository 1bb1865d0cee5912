"""What is measured, and which event says so: the same for every system of metrics.

Names are those of OpenTelemetry, dotted and without unit.  Prometheus has underscores, the unit in seconds and
``_total``, which is also what OpenTelemetry's own exporter for Prometheus makes of them.

What names a lock is a label only if the user says which one: there may be a million names, and each value of a
label is a time series for ever.  Masters are those of the configuration, so they are labels.
"""

from __future__ import annotations

import logging
import threading
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
    MasterDown,
    MasterUp,
    QuorumBack,
    QuorumLost,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock import Event, Vote

OTHER = "other"  # the label of all names that have none of their own
_log = logging.getLogger("redlock")


@dataclass(frozen=True, slots=True)
class Counter:
    """It only grows.  ``unit`` is what is counted, ``labels`` what tells its series apart besides the lock.

    ``values``: all that its label may be, if it has one and that is known.
    """

    name: str
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    by_lock: bool = True
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution of seconds; ``bounds`` are the upper ones of its buckets, ``values`` as of a `Counter`."""

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
    "Time from the call of acquire to its answer, waiting included; outcome: acquired, held, unreachable, slow or unusable",
    _WAIT,
    ("outcome",),
    values=("acquired", "held", "unreachable", "slow", "unusable"),
)
GRANT = Histogram(
    "redlock.grant.duration", "Time from sending a request for a lock until a majority had granted it", _ROUND
)
HOLD = Histogram("redlock.hold.duration", "Time for which a lock was held, until its release or its loss", _HOLD)
ATTEMPTS = Counter("redlock.attempts", "attempt", "Requests for a lock; more than acquires where there is contention")
EXTENSIONS = Counter("redlock.extensions", "extension", "Leases that were extended, by holder or keeper")
LOSSES = Counter(
    "redlock.losses",
    "loss",
    "Leases that ended before their holder was done; reason: expired, taken, unreachable or max_hold",
    ("reason",),
    values=("expired", "taken", "unreachable", "max_hold"),
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

HISTOGRAMS = (ACQUIRE, GRANT, HOLD)
COUNTERS = (ATTEMPTS, EXTENSIONS, LOSSES, VOTES, QUORUM_LOSSES, QUORUM_RECOVERIES)


class Observer(ABC):
    """From events to measurements.  Whoever derives from this hands them to a system of metrics.

    May be called by any thread.  Never waits for anything but the moment in which another thread counts.
    """

    def __init__(self, label: Callable[[str], str] | None, max_labels: int) -> None:
        self._lock_label = None if label is None else Labels(label, max_labels)

    def __call__(self, event: Event) -> None:  # noqa: C901 - one case for each kind of event
        match event:
            case LockAcquired():
                lock = self._lock_of(event.name)
                self._record(ACQUIRE, event.seconds, lock, "acquired")
                self._record(GRANT, max((vote.latency or 0.0 for vote in event.votes), default=0.0), lock)
                self._count(ATTEMPTS, event.attempts, lock)
                self._votes(event.votes)
            case LockRefused():
                lock = self._lock_of(event.name)
                self._record(ACQUIRE, event.seconds, lock, event.kind)
                if event.attempts:  # else it stood in line behind others of this process, and asked nobody
                    self._count(ATTEMPTS, event.attempts, lock)
                    self._votes(event.votes)
            case LeaseExtended():
                self._count(EXTENSIONS, 1, self._lock_of(event.name))
                self._votes(event.votes)
            case LockReleased():
                self._record(HOLD, event.held, self._lock_of(event.name))
            case LeaseLost():
                lock = self._lock_of(event.name)
                self._record(HOLD, event.held, lock)
                self._count(LOSSES, 1, lock, event.reason)
            case MasterUp():
                self._master(event.master, up=True, quarantined=event.quarantined)
            case MasterDown():
                self._master(event.master, up=False, quarantined=0.0)
            case QuorumLost():
                self._count(QUORUM_LOSSES, 1, ())
            case QuorumBack():
                self._count(QUORUM_RECOVERIES, 1, ())

    def _lock_of(self, name: str) -> tuple[str, ...]:
        return () if self._lock_label is None else (self._lock_label(name),)

    def _votes(self, votes: tuple[Vote, ...]) -> None:
        for vote in votes:
            self._count(VOTES, 1, (), vote.master, vote.outcome)

    @abstractmethod
    def _count(self, what: Counter, amount: int, lock: tuple[str, ...], *labels: str) -> None:
        """``lock`` is empty, or has the label of the lock; ``labels`` are in the order of ``what.labels``."""

    @abstractmethod
    def _record(self, what: Histogram, seconds: float, lock: tuple[str, ...], *labels: str) -> None:
        """See `_count`."""

    @abstractmethod
    def _master(self, master: str, *, up: bool, quarantined: float) -> None:
        """It is ``up`` or not; its vote counts in so many seconds from now, infinity for not before something changes."""


class Labels:
    """From the name of a lock to the label that it is counted under, of which there are only so many."""

    def __init__(self, label: Callable[[str], str], most: object) -> None:
        if not callable(label):
            raise ConfigurationError(f"label={label!r}: allowed is a function from the name of a lock to a label")
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise ConfigurationError(f"max_labels={most!r}: allowed is a whole number, 1 or more")
        self._label = label
        self._most = most
        self._known: set[str] = set()
        self._told: set[str] = set()
        self._adding = threading.Lock()

    def __call__(self, name: str) -> str:
        try:
            label = self._label(name)
        except Exception:  # noqa: BLE001 - a user's; a metric must not break what it measures
            self._tell("the label function of an observer raised; what it was asked about is counted as %r", error=True)
            return OTHER
        if not isinstance(label, str):
            self._tell(f"the label function of an observer returned {label!r:.80}, which is no str; counted as %r")
            return OTHER
        if label not in self._known:
            label = label.encode("utf-8", "replace").decode()  # or it would break the page with all other metrics
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
        """Once each: it would be said at every event."""
        kind = text[:50]
        if kind not in self._told:
            self._told.add(kind)
            _log.warning(text, OTHER, exc_info=error)
