"""Metrics through the API of OpenTelemetry. Needs the extra ``otel``, and an SDK that the application chooses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from redlock.observe import _measures
from redlock.observe._opentelemetry import server, version

try:
    from opentelemetry import metrics
except ImportError as error:
    raise ImportError(
        "redlock.observe.otel needs opentelemetry-api: pip install opentelemetry-api", name="opentelemetry"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["OpenTelemetryObserver"]


class OpenTelemetryObserver(_measures.Observer):
    """Records with the meter ``redlock``. Make it once; it serves any number of `Masters` and `AsyncMasters`.

    The instruments, with their attributes in brackets:

    - Histograms, in seconds: ``redlock.acquire.duration`` (``redlock.outcome``), ``redlock.grant.duration`` and
      ``redlock.hold.duration``.
    - Counters: ``redlock.attempts``, ``redlock.extensions``, ``redlock.losses`` (``redlock.reason``),
      ``redlock.bare_majority``, ``redlock.guard``, ``redlock.votes`` (``redlock.outcome``), ``redlock.quorum.losses``,
      ``redlock.quorum.recoveries`` and ``redlock.fleet.disagreements`` (``redlock.outcome``).
    - Gauges: ``redlock.waiters``, ``redlock.wait.oldest`` (seconds) and ``redlock.leases``, of this process (R40).
    - Gauges, 1 or 0: ``redlock.master.up`` and ``redlock.master.quarantined``. The latter is 1 if this process is
      connected to the master, but its vote does not count yet (R21).
    - A gauge for each master whose clock was seen to be wrong: ``redlock.master.clock_error`` (R43). It is 0.083 if
      that clock runs at least 8.3 % faster than ours, negative if slower, and 0 if it is right again.

    Votes and gauges also have the attributes ``server.address`` and ``server.port``. With a ``label`` function the
    first eight instruments also have the attribute ``redlock.lock``.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        *,
        label: Callable[[str], str] | None = None,
        max_labels: int = 100,
    ) -> None:
        """Make the instruments.

        Args:
            meter_provider: where the meter comes from. None: the global provider, even if it is set later.
            label: a function from the name of a lock to the value of ``redlock.lock``. Several names come joined by
                ", ". It should return one of few values, as ``lambda name: name.partition(":")[0]`` does. None: there
                is no such attribute.
            max_labels: how many values of ``redlock.lock`` there are at most. Names that would add another one are
                counted as ``other``.

        Raises:
            ConfigurationError: for a wrong value.
        """
        super().__init__(label, max_labels)
        meter = metrics.get_meter("redlock", version(), meter_provider)
        self._counters = {
            what: meter.create_counter(what.name, "s" if what.unit == "s" else f"{{{what.unit}}}", what.text)
            for what in _measures.COUNTERS
        }
        self._histograms = {
            what: meter.create_histogram(what.name, "s", what.text, explicit_bucket_boundaries_advisory=what.bounds)
            for what in _measures.HISTOGRAMS
        }
        meter.create_observable_gauge(
            _measures.WAITERS.name,
            [lambda _: [metrics.Observation(len(self._waits))]],
            f"{{{_measures.WAITERS.unit}}}",
            _measures.WAITERS.text,
        )
        meter.create_observable_gauge(
            "redlock.wait.oldest",
            [lambda _: [metrics.Observation(self._oldest())]],
            "s",
            "How long the oldest of them has waited; 0 without waiters",
        )
        meter.create_observable_gauge(
            _measures.LEASES.name,
            [lambda _: [metrics.Observation(self._held())]],
            f"{{{_measures.LEASES.unit}}}",
            _measures.LEASES.text,
        )
        # For each master: whether it is up, and when its vote counts, on a monotonic clock.
        self._masters: dict[str, tuple[bool, float]] = {}
        meter.create_observable_gauge(
            "redlock.master.up", [self._all_up], "{master}", "1: this process is connected to the master, 0: it is not"
        )
        meter.create_observable_gauge(
            "redlock.master.quarantined",
            [self._all_quarantined],
            "{master}",
            "1: this process is connected to the master, whose vote does not count yet, 0: otherwise",
        )
        self._rates: dict[str, float] = {}
        meter.create_observable_gauge(
            "redlock.master.clock_error",
            [self._all_rates],
            "1",
            "By how much the clock of the master runs faster than ours at least; negative: slower, 0: it is right",
        )

    def _count(self, what: _measures.Counter, amount: float, lock: tuple[str, ...], *labels: str) -> None:
        self._counters[what].add(amount, _attributes(what.labels, lock, labels))

    def _observe(self, what: _measures.Histogram, seconds: float, lock: tuple[str, ...], *labels: str) -> None:
        self._histograms[what].record(seconds, _attributes(what.labels, lock, labels))

    def _changed(self) -> None:
        """It is read when it is asked for."""

    def _master(self, master: str, *, up: bool, quarantined: float) -> None:
        self._masters[master] = up, time.monotonic() + quarantined

    def _clock(self, master: str, rate: float) -> None:
        self._rates[master] = rate

    def _all_rates(self, options: CallbackOptions) -> Iterator[Observation]:  # noqa: ARG002 - as below
        for master, rate in self._rates.copy().items():
            yield metrics.Observation(rate, server(master))

    def _all_up(self, options: CallbackOptions) -> Iterator[Observation]:  # noqa: ARG002 - it only has a timeout
        for master, (up, _) in self._masters.copy().items():
            yield metrics.Observation(int(up), server(master))

    def _all_quarantined(self, options: CallbackOptions) -> Iterator[Observation]:  # noqa: ARG002 - see above
        now = time.monotonic()
        for master, (_, until) in self._masters.copy().items():
            yield metrics.Observation(int(until > now), server(master))


def _attributes(names: tuple[str, ...], lock: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {"redlock.lock": lock[0]} if lock else {}
    for name, value in zip(names, values, strict=True):
        if name == "master":
            attributes.update(server(value))
        else:
            attributes[f"redlock.{name}"] = value
    return attributes
