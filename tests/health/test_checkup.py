"""When the probe is begun, and what is said when it is not: masters that answer when a table says."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from redlock import ConfigurationError, LockLost, Probe
from redlock._core.wire import Announced
from redlock._health import checkup, survey
from redlock._health.checkup import Checkup
from tests.health.facts import CLIENT_OPTIONS, dead, healthy

NEVER = 1e9


class Scripted:
    """An examination that takes so long, and finds that."""

    def __init__(self, target: Any, prefix: str, name: str, patience: float, **_: Any) -> None:
        self._result, self._delay = target
        self.facts = dead()
        self.done = False
        self._stopped = threading.Event()

    def run(self) -> None:
        if not self._stopped.wait(min(self._delay, 30)):
            self.facts = self._result
            self.done = True

    def stop(self):
        self._stopped.set()
        return self.facts


@pytest.fixture(autouse=True)
def _scripted(monkeypatch):
    monkeypatch.setattr(survey, "Examination", Scripted)


def fresh(number):
    return healthy(number, info={"uptime_in_seconds": "1"})


def check(table, *, timeout=5.0, probe=None, **options):
    taken: list[float] = []

    def real(max_ttl: float) -> Probe:
        taken.append(max_ttl)
        return Probe(ok=True, seconds=0.0, fence=1)

    began = time.monotonic()
    return Checkup(table, CLIENT_OPTIONS, timeout, probe or real, **options).run(), taken, time.monotonic() - began


def test_the_probe_waits_for_those_who_vote_not_for_those_who_answer():
    """Three answer at once, and one of them does not vote: whether there is a quorum, the others decide."""
    table = [(fresh(0), 0.0), (healthy(1), 0.0), (healthy(2), 0.0), (healthy(3), 0.5), (healthy(4), 0.5)]
    health, taken, _ = check(table)
    assert taken == [60.0]
    assert health.status == "WARNING"
    assert health.quorum.voting == 4


def test_it_does_not_wait_for_who_hangs():
    began: list[float] = []

    def probe(_: float) -> Probe:
        began.append(time.monotonic())
        return Probe(ok=True, seconds=0.0)

    at = time.monotonic()
    table = [(healthy(0), 0.0), (healthy(1), 0.0), (healthy(2), 0.0), (healthy(3), NEVER), (healthy(4), NEVER)]
    _, _, took = check(table, timeout=3.0, probe=probe)
    assert began[0] - at < 2.5
    assert 2.9 < took < 6


def test_without_a_quorum_no_lock_is_tried():
    health, taken, _ = check([(dead(0), 0.0), (dead(1), 0.0), (healthy(2), 0.0)])
    assert taken == []
    assert health.quorum.probe is not None
    assert health.quorum.probe.error == "not tried, as 1 of 3 masters vote"


def test_a_probe_that_does_not_come_back_is_a_finding_in_time():
    stuck = threading.Event()

    def probe(_: float) -> Probe:
        stuck.wait(30)
        return Probe(ok=True, seconds=30.0)

    try:
        health, _, took = check([(healthy(i), 0.0) for i in range(3)], timeout=0.5, probe=probe)
    finally:
        stuck.set()
    assert took < 5
    assert health.status == "CRITICAL"
    assert "not done within 0.5 s" in health.findings[0].message


@pytest.mark.parametrize(
    ("error", "says"),
    [(ConfigurationError("ttl=0 is wrong"), "ttl=0 is wrong"), (ValueError("geheim"), "it ended with ValueError")],
)
def test_a_probe_that_fails_altogether_is_a_finding(error, says):
    """Not a traceback of its thread, and not one that is late; what others say may quote a password."""

    def probe(_: float) -> Probe:
        raise error

    health, _, _ = check([(healthy(i), 0.0) for i in range(3)], probe=probe)
    assert health.status == "CRITICAL"
    assert health.findings[0].message == f"a real lock did not work: {says}"


def test_one_that_is_stopped_begins_no_probe(monkeypatch):
    """The caller that waited for it is gone, and a lock would be nobody's."""
    table = [(healthy(0), 0.0), (healthy(1), 0.0), (healthy(2), NEVER)]
    taken: list[float] = []
    wait_for = survey.Survey.wait_for

    def stopped_meanwhile(*arguments):
        facts = wait_for(*arguments)
        stopped.stop()
        return facts

    def probe(max_ttl: float) -> Probe:
        taken.append(max_ttl)
        return Probe(ok=True, seconds=0.0)

    monkeypatch.setattr(survey.Survey, "wait_for", stopped_meanwhile)
    targets: Any = table
    stopped = Checkup(targets, CLIENT_OPTIONS, 0.5, probe)
    stopped.run()
    assert taken == []


class Early(Scripted):
    """When it is stopped for the first time, it has nothing yet that could be interrupted."""

    early = True

    def run(self):
        super().run()
        self.done = True

    def stop(self):
        if not self.early:
            self._stopped.set()
        self.early = False
        return self.facts


def test_one_that_had_nothing_to_interrupt_yet_is_stopped_all_the_same(monkeypatch):
    """Its thread would go on until the check had been over."""
    monkeypatch.setattr(survey, "Examination", Early)
    targets: Any = [(healthy(number), NEVER) for number in range(3)]
    checkup = Checkup(targets, CLIENT_OPTIONS, 25.0, None)
    thread = threading.Thread(target=checkup.run)
    thread.start()
    checkup.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_who_adopts_takes_the_longest_max_ttl_that_is_announced():
    table = [(replace(healthy(i), announced=Announced(120.0 * (i or 1))), 0.0) for i in range(3)]
    health, taken, _ = check(table, adopt=True)
    assert taken == [240.0]
    assert health.quorum.max_ttl == 240.0
    assert health.ok
    health, taken, _ = check(table)
    assert taken == [60.0]
    assert [finding.code for finding in health.findings] == ["max-ttl"]


class Lock:
    """What a probe takes; ``trouble`` is where it goes wrong."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self.calls: list[str] = []
        self.fence = 7

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> Lock | None:
        self.calls.append("acquire")
        return None if self.trouble == "acquire" else self

    def extend(self) -> None:
        self.calls.append("extend")
        if self.trouble == "extend":
            raise LockLost("it is gone")

    def release(self) -> None:
        self.calls.append("release")
        if self.trouble == "release":
            raise LockLost("it was gone")


@pytest.mark.parametrize(("trouble", "calls", "error"), [
    ("", ["acquire", "extend", "release"], None),
    ("acquire", ["acquire"], "somebody else holds"),
    ("extend", ["acquire", "extend", "release"], "it is gone"),
    ("release", ["acquire", "extend", "release"], "it was gone"),
])  # fmt: skip
def test_the_probe_acquires_extends_and_releases_and_says_what_went_wrong(trouble, calls, error):
    lock = Lock(trouble)
    result = checkup.probe(lock)
    assert lock.calls == calls
    assert result.ok == (error is None)
    assert (error or "") in (result.error or "")
