"""Names, units and buckets are those that people who run each system expect, and the docstrings tell them all."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import get_args

import prometheus_client
import pytest
from opentelemetry import metrics
from prometheus_client.parser import text_string_to_metric_families

import redlock.observe
from redlock import (
    ConfigurationError,
    LockReleased,
    MastersAgree,
    MastersDisagree,
    MasterUp,
    QuorumBack,
    QuorumLost,
    WaitBegan,
    WaitEnded,
)
from redlock.errors import Reason
from redlock.observe import _measures, all_of
from redlock.observe.otel import OpenTelemetryObserver
from redlock.observe.prometheus import PrometheusObserver
from tests.observe.read import Observed, OfOpenTelemetry, OfPrometheus
from tests.observe.test_measures import EVERY

MORE = (
    MasterUp("a:1", 5.0), QuorumLost(()), QuorumBack(), MastersDisagree(("a",), (("b",),), False), MastersAgree(),
    WaitBegan("job:7", 1), WaitEnded("job:7", 1),
    redlock.MasterClock("a:1", 0.083, 60.0),
)  # fmt: skip


def test_the_page_of_prometheus():
    """https://prometheus.io/docs/practices/naming: a prefix, base units, `_total` for what only grows."""
    system = OfPrometheus()
    Observed(system).tell(*EVERY, *MORE)
    families = list(text_string_to_metric_families(system.page()))
    ours = [family for family in families if not family.name.endswith("_created")]
    assert len(ours) == 18
    for family in ours:
        assert family.name.startswith("redlock_")
        assert (family.type == "histogram") == ("duration" in family.name)
        assert family.type == "counter" or re.search("_(seconds|ratio|up|waiters|leases)$", family.name), family.name
        assert family.documentation
        documented = f"{family.name}_total" if family.type == "counter" else family.name
        assert documented in str(PrometheusObserver.__doc__), documented


def test_series_whose_labels_are_known_begin_at_zero():
    """Or `increase` would not see the first loss, for a series that begins with it has not grown."""
    system = OfPrometheus()
    system.make()
    assert {labels["reason"]: value for labels, value in system.series("redlock.losses")} == dict.fromkeys(
        get_args(Reason), 0
    )
    outcomes = {labels["outcome"]: value for labels, value in system.series("redlock.acquire.duration", "count")}
    assert outcomes == dict.fromkeys(("acquired", "held", "crowded", "unreachable", "slow", "unusable"), 0)
    system = OfPrometheus()
    system.make(label=str)  # nobody knows which locks there will be
    assert not [*system.series("redlock.losses")]


def test_the_instruments_of_opentelemetry():
    """Dotted names, units in UCUM, what is counted in braces; no `_total`, no unit in a name."""
    system = OfOpenTelemetry()
    Observed(system).tell(*EVERY, *MORE)
    found = system.metrics()
    assert len(found) == 18
    seconds = {name for name, metric in found.items() if metric.unit == "s"}
    assert seconds == {name for name in found if re.search(r"duration$|guard|bare_majority|wait\.oldest", name)}
    assert all(
        re.fullmatch(r"\{[a-z]+\}", found[name].unit) for name in {*found} - seconds - {"redlock.master.clock_error"}
    )
    for name, metric in found.items():
        assert metric.description
        assert name in str(OpenTelemetryObserver.__doc__), name
    (point,) = found["redlock.grant.duration"].data.data_points
    assert tuple(point.explicit_bounds) == _measures.GRANT.bounds
    (point,) = found["redlock.master.up"].data.data_points
    assert point.attributes == {"server.address": "a", "server.port": 1}


@pytest.mark.parametrize(("master", "attributes"), [
    ("10.0.0.1:6379", {"server.address": "10.0.0.1", "server.port": 6379}),
    ("[fe80::1]:6379", {"server.address": "fe80::1", "server.port": 6379}),
    ("/run/redis.sock", {"server.address": "/run/redis.sock"}),
    ("/run/odd:name", {"server.address": "/run/odd:name"}),
])  # fmt: skip
def test_how_a_server_is_named(master, attributes):
    system = OfOpenTelemetry()
    system.make()(MasterUp(master, 0.0))
    (point,) = system.metrics()["redlock.master.up"].data.data_points
    assert point.attributes == attributes


def test_the_meter_of_opentelemetry_may_be_provided_later():
    """Without a provider there is the global one, which counts nothing until the application sets an SDK."""
    observer = OpenTelemetryObserver()
    for event in (*EVERY, *MORE):
        observer(event)
    assert metrics.get_meter_provider() is not None


def test_one_observer_of_prometheus_for_each_registry():
    registry = prometheus_client.CollectorRegistry()
    first = PrometheusObserver(registry)
    with pytest.raises(ConfigurationError, match="make it once and share it"):
        PrometheusObserver(registry)
    first(LockReleased("a", "t", 1, 1.0))
    assert registry.get_sample_value("redlock_hold_duration_seconds_count") == 1


def test_what_could_not_be_registered_leaves_nothing_behind():
    registry = prometheus_client.CollectorRegistry()
    other = prometheus_client.Counter("redlock_votes", "of somebody else", registry=registry)
    with pytest.raises(ConfigurationError, match="redlock_votes"):
        PrometheusObserver(registry)
    registry.unregister(other)
    PrometheusObserver(registry)


def test_the_default_registry_is_the_one_that_everybody_exposes():
    code = (
        "from redlock.observe.prometheus import PrometheusObserver as P\n"
        "from redlock import LockReleased\n"
        "import prometheus_client\n"
        "P()(LockReleased('a', 't', 1, 2.0))\n"
        "assert 'redlock_hold_duration_seconds_sum 2.0' in prometheus_client.generate_latest().decode()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


# -- more than one -----------------------------------------------------------------------------------


def test_all_of_tells_each_one_also_if_another_raises_and_takes_functions():
    one: list[redlock.Event] = []
    other: list[redlock.Event] = []

    def broken(event):
        raise ZeroDivisionError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        all_of(broken, one.append, broken, other.append)(event := MasterUp("a:1", 0.0))
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError, ZeroDivisionError]
    assert one == other == [event]
    all_of()(event)
    with pytest.raises(ConfigurationError, match=r"all_of\(5\)"):
        all_of(print, 5)  # type: ignore[arg-type]


def test_every_kind_of_event_has_a_meaning():
    """Or a new one would be passed over in silence."""
    told = {type(event) for event in (*EVERY, *MORE)} | {redlock.MasterDown}
    assert set(redlock.Event.__args__) == told
