"""Which event becomes which span, read back from an exporter in memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from redlock import (
    FailedAttempt,
    LeaseExtended,
    LeaseLost,
    LockAcquired,
    LockRefused,
    LockReleased,
    MasterDown,
    QuorumLost,
    Vote,
)
from redlock.observe import all_of
from tests.observe.read import OfPrometheus
from tests.observe.spans import Spans, events, linked, under

VOTES = (
    Vote("a:1", "granted", 0.002),
    Vote("[::1]:2", "granted", 0.004),
    Vote("/run/redis", "timeout", None, "no answer within 0.25 s"),
)
REFUSED = (Vote("a:1", "held", 0.002, "held by web-3/1 for up to 9.7 s"),) * 3
TOKEN = "a" * 40 + ":web-1/17"
ACQUIRED = LockAcquired("job:7", TOKEN, 9, 3, 0.75, VOTES, (FailedAttempt("held", 0.1, REFUSED),) * 2)


@pytest.fixture
def spans():
    return Spans()


def test_an_acquire_with_its_attempts_and_votes(spans):
    with spans.tracer.start_as_current_span("pay") as pay:
        spans.observer(ACQUIRED)
    span = spans.one("redlock.acquire")
    assert under(span, pay)
    assert span.kind is SpanKind.CLIENT
    assert span.end_time - span.start_time == 750_000_000
    assert dict(span.attributes) == {
        "redlock.lock": "job:7", "redlock.owner": "web-1/17", "redlock.fence": 9, "redlock.outcome": "acquired",
        "redlock.attempts": 3,
    }  # fmt: skip
    assert [event.name.removeprefix("redlock.") for event in span.events] == ["attempt", *["vote"] * 3] * 3
    assert events(span, "redlock.attempt") == [
        {"redlock.attempt": 1, "redlock.outcome": "held"},
        {"redlock.attempt": 2, "redlock.outcome": "held"},
        {"redlock.attempt": 3, "redlock.outcome": "acquired"},
    ]
    assert events(span, "redlock.vote")[-3:] == [
        {"server.address": "a", "server.port": 1, "redlock.outcome": "granted", "redlock.latency": 0.002},
        {"server.address": "::1", "server.port": 2, "redlock.outcome": "granted", "redlock.latency": 0.004},
        {"server.address": "/run/redis", "redlock.outcome": "timeout", "redlock.reason": "no answer within 0.25 s"},
    ]
    assert span.events[0].timestamp - span.start_time == 100_000_000
    assert span.events[-1].timestamp == span.end_time
    assert span.status.status_code is StatusCode.UNSET
    assert "a" * 40 not in span.to_json()


@pytest.mark.parametrize(("kind", "status"), [
    ("held", StatusCode.UNSET), ("unreachable", StatusCode.ERROR), ("slow", StatusCode.ERROR),
    ("unusable", StatusCode.ERROR),
])  # fmt: skip
def test_a_refusal(spans, kind, status):
    spans.observer(LockRefused("job:7", kind, 1, 0.5, VOTES))
    span = spans.one("redlock.acquire")
    assert span.parent is None
    assert span.status.status_code is status
    assert events(span, "redlock.attempt") == [{"redlock.attempt": 1, "redlock.outcome": kind}]
    assert not spans.all("redlock.held")


def test_who_only_stood_in_line_has_asked_no_master(spans):
    spans.observer(LockRefused("job:7", "held", 0, 0.5, VOTES))
    assert not spans.one("redlock.acquire").events


def test_the_latest_attempts_keep_their_numbers(spans):
    spans.observer(LockRefused("job:7", "held", 100, 50.0, REFUSED, (FailedAttempt("held", 49.0, REFUSED),) * 16))
    numbers = [event["redlock.attempt"] for event in events(spans.one("redlock.acquire"), "redlock.attempt")]
    assert numbers == list(range(84, 101))


def test_a_lease_from_its_grant_to_its_release(spans):
    with spans.tracer.start_as_current_span("pay") as pay:
        spans.observer(ACQUIRED)
    spans.observer(LeaseExtended("job:7", TOKEN, 9, 20.0, VOTES, renewed=True))  # in another thread: no span is current
    assert not spans.all("redlock.held")
    spans.observer(LockReleased("job:7", TOKEN, 9, 3.0))
    span = spans.one("redlock.held")
    assert under(span, pay)
    assert linked(span, spans.one("redlock.acquire"))
    assert span.end_time - span.start_time == 3_000_000_000
    assert events(span, "redlock.renewed") == [{"redlock.remaining": 20.0}]
    assert dict(span.attributes) == {"redlock.lock": "job:7", "redlock.owner": "web-1/17", "redlock.fence": 9}
    assert span.status.status_code is StatusCode.UNSET
    assert not spans.all("redlock.extend")


def test_an_extension_by_its_holder(spans):
    spans.observer(ACQUIRED)
    with spans.tracer.start_as_current_span("step 2") as step:
        spans.observer(LeaseExtended("job:7", TOKEN, 9, 20.0, VOTES))
    spans.observer(LockReleased("job:7", TOKEN, 9, 3.0))
    span, held = spans.one("redlock.extend"), spans.one("redlock.held")
    assert under(span, step)
    assert linked(span, held)
    assert len(events(span, "redlock.vote")) == 3
    assert span.end_time - span.start_time == 4_000_000
    assert not events(held, "redlock.renewed")


def test_a_loss_is_an_error_and_ends_when_the_lease_did(spans):
    spans.observer(ACQUIRED)
    spans.observer(LeaseLost("job:7", TOKEN, 9, "taken", 4.0))
    span = spans.one("redlock.held")
    assert span.status.status_code is StatusCode.ERROR
    assert "taken" in (span.status.description or "")
    assert events(span, "redlock.lost") == [{"redlock.reason": "taken"}]
    assert span.end_time - span.start_time == 4_000_000_000
    spans.observer(LeaseExtended("job:7", TOKEN, 9, 20.0, VOTES, renewed=True))  # late: it changes nothing


def test_a_loss_that_is_told_before_its_grant(spans):
    """By the renewer's thread, while that of the holder stood still."""
    spans.observer(LeaseLost("job:7", TOKEN, 9, "expired", 4.0))
    spans.observer(ACQUIRED)
    spans.observer(LockAcquired("job:8", "u", None, 1, 0.1, VOTES))
    spans.observer(LockReleased("job:8", "u", None, 1.0))
    assert [span.attributes["redlock.lock"] for span in spans.all("redlock.held")] == ["job:7", "job:8"]
    assert spans.started() == ["redlock.held", "redlock.acquire", "redlock.acquire", "redlock.held"]


def test_a_lease_that_was_resumed_by_its_token(spans):
    spans.observer(LeaseExtended("job:7", TOKEN, 9, 20.0, VOTES))
    spans.observer(LockReleased("job:7", TOKEN, 9, 3.0))
    assert spans.one("redlock.held").end_time - spans.one("redlock.held").start_time == 3_000_000_000


def test_masters_have_no_spans_and_metrics_may_stand_beside(spans):
    system = OfPrometheus()
    tell = all_of(system.make(), spans.observer)
    for event in (MasterDown("a:1", "refused"), QuorumLost(VOTES)):
        tell(event)
    assert not spans.started()
    tell(ACQUIRED)
    tell(LockReleased("job:7", TOKEN, 9, 3.0))
    assert spans.one("redlock.acquire")
    assert sum(value for _, value in system.series("redlock.hold.duration", "count")) == 1


def test_only_who_asks_for_spans_or_metrics_imports_their_libraries():
    code = """
import sys
import redis  # it imports opentelemetry itself, if that is there
def imported():
    return {name for name in sys.modules if name.startswith(("opentelemetry", "redlock.observe.traces"))}
before = imported()
import redlock
assert not [name for name in sys.modules if name.startswith("redlock.observe")]
import redlock.observe
assert "prometheus_client" not in sys.modules
import redlock.observe.prometheus
redlock.Masters(["redis://127.0.0.1:1"], observer=print)
assert imported() == before, imported() - before
sys.modules["opentelemetry"] = None
try:
    import redlock.observe.traces
except ImportError as error:
    assert "pip install opentelemetry-api" in str(error), error
else:
    raise SystemExit("it was imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
