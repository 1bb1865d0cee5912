"""Metrics through the client library of Prometheus. Needs the extra ``prometheus``."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from redlock import ConfigurationError
from redlock.observe import _measures

try:
    import prometheus_client
except ImportError as error:
    raise ImportError(
        "redlock.observe.prometheus needs prometheus-client: pip install prometheus-client",
        name="prometheus_client",
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prometheus_client.registry import Collector

__all__ = ["PrometheusObserver"]


class PrometheusObserver(_measures.Observer):
    """Counts into a registry of ``prometheus_client``. It adds no endpoint: expose the registry as usual.

    Make one for each registry; it serves any number of `Masters` and `AsyncMasters`. The gauges of a master show its
    last event. If two `Masters` have the same master, the one with the latest event wins.

    The metrics, with their labels:

    - Histograms: ``redlock_acquire_duration_seconds{outcome}``, ``redlock_grant_duration_seconds`` and
      ``redlock_hold_duration_seconds``.
    - Counters: ``redlock_attempts_total``, ``redlock_extensions_total``, ``redlock_losses_total{reason}``,
      ``redlock_bare_majority_seconds_total``, ``redlock_guard_seconds_total``,
      ``redlock_votes_total{master,outcome}``, ``redlock_quorum_losses_total``,
      ``redlock_quorum_recoveries_total`` and ``redlock_fleet_disagreements_total{outcome}``.
    - Gauges of this process (R40): ``redlock_waiters``, ``redlock_leases`` and
      ``redlock_oldest_wait_start_timestamp_seconds``. The latter is the Unix time at which the oldest wait began, or
      +Inf without waiters. A client waits for more than a minute if
      ``time() - redlock_oldest_wait_start_timestamp_seconds > 60``.
    - Gauges: ``redlock_master_up{master}``, 1 or 0, and ``redlock_master_quarantine_end_timestamp_seconds{master}``.
      The latter is the Unix time from which the vote of the master counts (R21). It is 0 if the vote counts, and +Inf
      if something has to be changed first. The masters that are quarantined now are those with
      ``redlock_master_quarantine_end_timestamp_seconds > time()``.
    - A gauge for each master whose clock was seen to be wrong: ``redlock_master_clock_error_ratio{master}`` (R43). It
      is 0.083 if that clock runs at least 8.3 % faster than ours, negative if slower, and 0 if it is right again.

    With a ``label`` function the first eight metrics also have the label ``lock``.
    """

    def __init__(
        self,
        registry: prometheus_client.CollectorRegistry = prometheus_client.REGISTRY,
        *,
        label: Callable[[str], str] | None = None,
        max_labels: int = 100,
    ) -> None:
        """Register the metrics.

        Args:
            registry: where they are registered.
            label: a function from the name of a lock to the value of the label ``lock``. Several names come joined by
                ", ". It should return one of few values, as ``lambda name: name.partition(":")[0]`` does. None: there
                is no such label.
            max_labels: how many values of the label ``lock`` there are at most. Names that would add another one are
                counted as ``other``.

        Raises:
            ConfigurationError: for a wrong value, or if the registry has these metrics already.
        """
        super().__init__(label, max_labels)
        lock = () if label is None else ("lock",)
        self._counters = {
            what: prometheus_client.Counter(
                _name(what), what.text, (*(lock if what.by_lock else ()), *what.labels), registry=None
            )
            for what in _measures.COUNTERS
        }
        self._histograms = {
            what: prometheus_client.Histogram(
                f"{_name(what)}_seconds", what.text, (*lock, *what.labels), buckets=what.bounds, registry=None
            )
            for what in _measures.HISTOGRAMS
        }
        # Make all series now, at 0. A series that began with its first event would show no increase, and alerts would
        # miss that event. With a label for locks this cannot be done: its values are not known yet.
        if label is None:
            for counted, counter in self._counters.items():
                for value in counted.values:
                    counter.labels(value)
            for measured, histogram in self._histograms.items():
                for value in measured.values:
                    histogram.labels(value)
        # In the multiprocess mode of the client library each process knows its own connections.
        self._up = prometheus_client.Gauge(
            "redlock_master_up",
            "1: this process is connected to the master, 0: it is not",
            ("master",),
            registry=None,
            multiprocess_mode="livemin",
        )
        # The time of the end, not the seconds left: it stays right, although no event marks the end.
        self._quarantine = prometheus_client.Gauge(
            "redlock_master_quarantine_end_timestamp_seconds",
            "Unix time from which the vote of the master counts; 0: it does",
            ("master",),
            registry=None,
            multiprocess_mode="livemax",
        )
        self._clocks = prometheus_client.Gauge(
            "redlock_master_clock_error_ratio",
            "By how much the clock of the master runs faster than ours at least; negative: slower, 0: it is right",
            ("master",),
            registry=None,
            multiprocess_mode="max",
        )
        self._waiters, self._leases_held = (
            prometheus_client.Gauge(_name(what), what.text, registry=None, multiprocess_mode="livesum")
            for what in (_measures.WAITERS, _measures.LEASES)
        )
        self._leases_held.set_function(self._held)
        # When it began, not for how long: it stays right, although no event tells that time passes.
        self._oldest_began = prometheus_client.Gauge(
            "redlock_oldest_wait_start_timestamp_seconds",
            "Unix time at which the oldest wait of this process began; +Inf: no waiter",
            registry=None,
            multiprocess_mode="livemin",
        )
        self._changed()
        gauges = [self._up, self._quarantine, self._clocks, self._waiters, self._leases_held, self._oldest_began]
        _register(registry, [*self._counters.values(), *self._histograms.values(), *gauges])

    def _count(self, what: _measures.Counter, amount: float, lock: tuple[str, ...], *labels: str) -> None:
        counter, values = self._counters[what], (*lock, *labels)
        (counter.labels(*values) if values else counter).inc(amount)

    def _observe(self, what: _measures.Histogram, seconds: float, lock: tuple[str, ...], *labels: str) -> None:
        histogram, values = self._histograms[what], (*lock, *labels)
        (histogram.labels(*values) if values else histogram).observe(seconds)

    def _changed(self) -> None:
        self._waiters.set(len(self._waits))
        self._leases_held.set(len(self._leases))  # where several processes write
        self._oldest_began.set(time.time() - self._oldest() if self._waits else math.inf)

    def _master(self, master: str, *, up: bool, quarantined: float) -> None:
        self._up.labels(master).set(up)
        self._quarantine.labels(master).set(time.time() + quarantined if quarantined else 0.0)

    def _clock(self, master: str, rate: float) -> None:
        self._clocks.labels(master).set(rate)


def _name(what: _measures.Counter | _measures.Histogram | _measures.Gauge) -> str:
    seconds = "_seconds" * (isinstance(what, _measures.Counter) and what.unit == "s")
    return what.name.replace(".", "_") + seconds


def _register(registry: prometheus_client.CollectorRegistry, collectors: Sequence[Collector]) -> None:
    """Register all collectors, or none.

    Raises:
        ConfigurationError: the registry has one of these names already.
    """
    for number, collector in enumerate(collectors):
        try:
            registry.register(collector)
        except ValueError as error:
            for before in collectors[:number]:
                registry.unregister(before)
            raise ConfigurationError(
                f"this registry has metrics of these names already ({error}): one observer serves any number of "
                "Masters, so make it once and share it, or give this one a registry of its own"
            ) from None
