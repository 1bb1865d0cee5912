"""When the probe is begun, and what is said when it is not: masters that answer when a table says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from redlock import ConfigurationError, LockLost, Probe
from redlock._health import checkup, survey
from redlock._health.checkup import Checkup
from redlock._system import clock
from tests.health.facts import CLIENT_OPTIONS, dead, healthy

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER = 1e9


class Machine:
    """Virtual time: a thread runs when its time has come, while another one waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.probing = 0.0  # seconds that a probe takes
        self.threading = SimpleNamespace(
            Thread=lambda **options: Thread(self, **options), Condition=lambda: Condition(self)
        )

    def sleep(self, seconds: float) -> None:
        """For so long, or until something has happened."""
        due = min(self.due, key=lambda one: one[0], default=(NEVER, None))
        self.now = max(self.now, min(due[0], self.now + seconds))
        if due[0] <= self.now and due[1] is not None:
            self.due.remove(due)
            due[1]()


class Thread:
    def __init__(self, machine: Machine, *, target: Callable[..., None], args: tuple[Any, ...], **_: Any) -> None:
        self._machine, self._target, self._args = machine, target, args
        self._over = False

    def start(self) -> None:
        seconds = getattr(self._args[0], "delay", self._machine.probing)
        self._machine.due.append((self._machine.now + seconds, self._run))

    def _run(self) -> None:
        self._target(*self._args)
        self._over = True

    def join(self, seconds: float = NEVER) -> None:
        until = self._machine.now + seconds
        while not (self._over or getattr(self._args[0], "done", False)) and self._machine.now < until:
            self._machine.sleep(until - self._machine.now)


class Condition:
    def __init__(self, machine: Machine) -> None:
        self.wait = machine.sleep

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...


class Scripted:
    """An examination that takes so long, and finds that."""

    def __init__(self, target: Any, prefix: str, name: str, patience: float, **_: Any) -> None:
        self._result, self.delay = target
        self.facts = dead()
        self.done = False

    def run(self) -> None:
        self.facts = self._result
        self.done = True

    def stop(self):
        return self.facts


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(survey, "Examination", Scripted)
    monkeypatch.setattr(clock, "now", lambda: machine.now)
    for module in (survey, checkup):
        monkeypatch.setattr(module, "threading", machine.threading)
    return machine


def fresh(number):
    return healthy(number, info={"uptime_in_seconds": "1"})


def check(table, *, timeout=5.0, probe=None, **options):
    taken: list[float] = []

    def real(max_ttl: float) -> Probe:
        taken.append(max_ttl)
        return Probe(ok=True, seconds=0.0, fence=1)

    return Checkup(table, CLIENT_OPTIONS, timeout, probe or real, **options).run(), taken


def test_the_probe_waits_for_those_who_vote_not_for_those_who_answer():
    """Three answer at once, and one of them does not vote: whether there is a quorum, the others decide."""
    table = [(fresh(0), 0.0), (healthy(1), 0.0), (healthy(2), 0.0), (healthy(3), 0.5), (healthy(4), 0.5)]
    health, taken = check(table)
    assert taken == [60.0]
    assert health.status == "WARNING"
    assert health.quorum.voting == 4


def test_it_does_not_wait_for_who_hangs(machine):
    """Neither to begin the probe, nor beyond its own time, however many hang."""
    began: list[float] = []

    def probe(_: float) -> Probe:
        began.append(machine.now)
        return Probe(ok=True, seconds=0.0)

    for hang in (1, 2, 5):
        at, table = machine.now, [(healthy(i), 0.0 if i < 5 - hang else NEVER) for i in range(5)]
        check(table, timeout=3.0, probe=probe)
        assert machine.now == at + 3.0
        assert [one - at < 0.05 for one in began] == [True] * (hang < 3)
        began.clear()


def test_without_a_quorum_no_lock_is_tried():
    health, taken = check([(dead(0), 0.0), (dead(1), 0.0), (healthy(2), 0.0)])
    assert taken == []
    assert health.quorum.probe is not None
    assert health.quorum.probe.error == "not tried, as 1 of 3 masters vote"


def test_a_probe_that_does_not_come_back_is_a_finding_in_time(machine):
    machine.probing, at = 30.0, machine.now
    health, _ = check([(healthy(i), 0.0) for i in range(3)], timeout=0.5)
    assert machine.now == at + 0.5
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

    health, _ = check([(healthy(i), 0.0) for i in range(3)], probe=probe)
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

    def stop(self):
        self.done, self.early = not self.early, False
        return self.facts


def test_one_that_had_nothing_to_interrupt_yet_is_stopped_all_the_same(monkeypatch, machine):
    """Its thread would go on until the check had been over."""
    monkeypatch.setattr(survey, "Examination", Early)
    targets: Any = [(healthy(number), NEVER) for number in range(3)]
    checkup, at = Checkup(targets, CLIENT_OPTIONS, 25.0, None), machine.now
    machine.due.append((at + 1.0, checkup.stop))
    checkup.run()
    assert machine.now - at < 1.1


@pytest.mark.parametrize(("trouble", "calls", "error"), [
    ("", ["acquire", "extend", "release"], None),
    ("acquire", ["acquire"], "another client holds"),
    ("extend", ["acquire", "extend", "release"], "it is gone"),
    ("release", ["acquire", "extend", "release"], "it is gone"),
])  # fmt: skip
def test_the_probe_acquires_extends_and_releases_and_says_what_went_wrong(trouble, calls, error):
    lock = Mock(fence=7)
    lock.acquire.return_value = None if trouble == "acquire" else lock
    if trouble in ("extend", "release"):
        lock.configure_mock(**{f"{trouble}.side_effect": LockLost("it is gone")})
    result = checkup.probe(lock)
    assert [name for name, *_ in lock.method_calls] == calls
    assert (result.ok, result.fence) == (error is None, None if trouble == "acquire" else 7)
    assert (error or "") in (result.error or "")
