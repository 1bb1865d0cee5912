"""An observer of each kind, and what it counted, as the system's own reader reads it.

    observed.make(label=...)                            an observer
    observed.tell(event, event, label=...)              one that has been told of these
    observed.value("redlock.votes", outcome="held")     what that has counted
    observed.count("redlock.hold.duration"), observed.sum(...), observed.labels(...)

Names and labels are those of OpenTelemetry here, without its prefix; `OfPrometheus` says what that makes of them.
"""

from __future__ import annotations

from typing import Any

import prometheus_client
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from redlock.observe.otel import OpenTelemetryObserver
from redlock.observe.prometheus import PrometheusObserver

Labels = dict[str, Any]


class OfPrometheus:
    """Reads the page that would be scraped."""

    def __init__(self):
        self.registry = prometheus_client.CollectorRegistry()

    def make(self, **options):
        return PrometheusObserver(self.registry, **options)

    def page(self):
        return prometheus_client.generate_latest(self.registry).decode()

    def series(self, name, part=""):
        """Of a histogram the ``part`` is ``sum`` or ``count``."""
        wanted = name.replace(".", "_") + (f"_seconds_{part}" if part else "")
        for family in text_string_to_metric_families(self.page()):
            for sample in family.samples:
                if sample.name in (wanted, f"{wanted}_total"):
                    yield dict(sample.labels), sample.value

    def close(self):
        pass


class OfOpenTelemetry:
    """Reads what the SDK would export."""

    def __init__(self):
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def make(self, **options):
        return OpenTelemetryObserver(self.provider, **options)

    def metrics(self):
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        ((scope,),) = ([*resource.scope_metrics] for resource in data.resource_metrics)
        assert scope.scope.name == "redlock"
        return {metric.name: metric for metric in scope.metrics}

    def series(self, name, part=""):
        if name not in (found := self.metrics()):
            return
        for point in found[name].data.data_points:
            labels = {key.removeprefix("redlock."): value for key, value in point.attributes.items()}
            if "server.address" in labels:
                address, port = labels.pop("server.address"), labels.pop("server.port", None)
                labels["master"] = address if port is None else f"{address}:{port}"
            yield labels, getattr(point, part or "value")

    def close(self):
        self.provider.shutdown()


class Observed:
    """Either of the two."""

    def __init__(self, system):
        self.system = system
        self.make = system.make

    def tell(self, *events, **options):
        """Make an observer, and have it told of ``events``."""
        observer = self.make(**options)
        for event in events:
            observer(event)
        return observer

    def _total(self, name, part, labels):
        return sum(value for found, value in self.system.series(name, part) if labels.items() <= found.items())

    def value(self, name, **labels):
        """The sum of all series that have these labels."""
        return self._total(name, "", labels)

    def count(self, name, **labels):
        return self._total(name, "count", labels)

    def sum(self, name, **labels):
        return self._total(name, "sum", labels)

    def labels(self, name, label, part=""):
        """Those for which something was counted."""
        return {found.get(label) for found, value in self.system.series(name, part) if value}


SYSTEMS: dict[str, type[OfPrometheus | OfOpenTelemetry]] = {"prometheus": OfPrometheus, "otel": OfOpenTelemetry}
