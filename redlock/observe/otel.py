"""Metrics in the API of OpenTelemetry.  Needs the extra ``otel``, and an SDK that the application chooses."""

from __future__ import annotations

import contextlib
import time
from importlib import metadata
from typing import TYPE_CHECKING

from redlock.observe import _measures

try:
    from opentelemetry import metrics
except ImportError as error:
    raise ImportError(
        "redlock.observe.otel needs opentelemetry-api: pip install 'redlock-quorum[otel]'", name="opentelemetry"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["OpenTelemetryObserver"]


class OpenTelemetryObserver(_measures.Observer):
    """Records with the meter ``redlock``.  It serves any number of `Masters`; make it once.

    Instruments: the histograms ``redlock.acquire.duration`` (attribute ``redlock.outcome``),
    ``redlock.grant.duration`` and ``redlock.hold.duration``, in seconds; the counters ``redlock.attempts``,
    ``redlock.extensions``, ``redlock.losses`` (``redlock.reason``), ``redlock.votes`` (``redlock.outcome``),
    ``redlock.quorum.losses`` and ``redlock.quorum.recoveries``; the gauges, 1 or 0, ``redlock.master.up`` and
    ``redlock.master.quarantined``: connected, but its vote does not count yet (R21).  Votes and gauges have ``server.address`` and ``server.port``.

    With a ``label`` function the first six have the attribute ``redlock.lock`` as well.
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
            meter_provider: None: the global one, also if it is set later.
            label: from the name of a lock (several are joined by ", ") to the value of ``redlock.lock``: the part of
                it that there are few of, as in ``lambda name: name.partition(":")[0]``.  None: no such attribute.
            max_labels: so many values it may have; names that would add another are counted as ``other``.

        Raises:
            ConfigurationError: for a wrong value.
        """
        super().__init__(label, max_labels)
        meter = metrics.get_meter("redlock", _version(), meter_provider)
        self._counters = {
            what: meter.create_counter(what.name, f"{{{what.unit}}}", what.text) for what in _measures.COUNTERS
        }
        self._histograms = {
            what: meter.create_histogram(what.name, "s", what.text, explicit_bucket_boundaries_advisory=what.bounds)
            for what in _measures.HISTOGRAMS
        }
        # Whether each master is up, and when its vote counts, by a clock that nobody sets.
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

    def _count(self, what: _measures.Counter, amount: int, lock: tuple[str, ...], *labels: str) -> None:
        self._counters[what].add(amount, _attributes(what.labels, lock, labels))

    def _record(self, what: _measures.Histogram, seconds: float, lock: tuple[str, ...], *labels: str) -> None:
        self._histograms[what].record(seconds, _attributes(what.labels, lock, labels))

    def _master(self, master: str, *, up: bool, quarantined: float) -> None:
        self._masters[master] = up, time.monotonic() + quarantined

    def _all_up(self, options: CallbackOptions) -> Iterator[Observation]:  # noqa: ARG002 - has a timeout; this needs none
        for master, (up, _) in self._masters.copy().items():
            yield metrics.Observation(int(up), _server(master))

    def _all_quarantined(self, options: CallbackOptions) -> Iterator[Observation]:  # noqa: ARG002 - see above
        now = time.monotonic()
        for master, (_, until) in self._masters.copy().items():
            yield metrics.Observation(int(until > now), _server(master))


def _attributes(names: tuple[str, ...], lock: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {"redlock.lock": lock[0]} if lock else {}
    for name, value in zip(names, values, strict=True):
        if name == "master":
            attributes.update(_server(value))
        else:
            attributes[f"redlock.{name}"] = value
    return attributes


def _server(master: str) -> dict[str, str | int]:
    """The attributes by which the semantic conventions name a server: an address and a port, or a path."""
    host, colon, port = master.rpartition(":")
    if not (colon and port.isdecimal()):
        return {"server.address": master}
    return {"server.address": host.removeprefix("[").removesuffix("]"), "server.port": int(port)}


def _version() -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):  # it runs from a source tree that is not installed
        return metadata.version("redlock-quorum")
    return ""
