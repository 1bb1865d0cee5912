"""Which event is counted as what, in each system of metrics, read back by that system's own reader."""

from __future__ import annotations

import math
import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from redlock import (
    ConfigurationError,
    LeaseExtended,
    LeaseLost,
    LockAcquired,
    LockRefused,
    LockReleased,
    MasterClock,
    MasterDown,
    MasterUp,
    QuorumBack,
    QuorumLost,
    Vote,
    WaitBegan,
    WaitEnded,
)
from redlock.observe import _measures, otel, prometheus
from redlock.observe._measures import Labels

VOTES = (
    Vote("a:1", "granted", 0.002),
    Vote("b:2", "granted", 0.004),
    Vote("c:3", "timeout", None, "no answer within 0.25 s"),
    Vote("d:4", "pending", None, "decided without it"),
)
ACQUIRED = LockAcquired("job:7", "t", 9, 3, 0.75, VOTES)


def refused(kind, attempts=2, name="job:7"):
    return LockRefused(name, kind, attempts, 0.5, VOTES)


# What is told, and what is read then: which figure of which measure, with which labels.
COUNTED: dict[str, tuple[Any, dict[str, float]]] = {
    "acquired": ((ACQUIRED, ACQUIRED), {
        "count acquire.duration outcome=acquired": 2, "sum acquire.duration": 1.5, "count grant.duration": 2,
        "sum grant.duration": 0.008, "value attempts": 6, "value votes outcome=granted": 4,
        "value votes outcome=granted master=b:2": 2, "value votes outcome=pending master=d:4": 2,
    }),
    **{f"refused-{kind}": ((refused(kind),), {
        f"count acquire.duration outcome={kind}": 1, "count acquire.duration": 1, "value attempts": 2,
        "value votes outcome=timeout": 1, "count grant.duration": 0,
    }) for kind in ("held", "unreachable", "slow", "unusable")},
    "acquired-without-latencies": ((LockAcquired("a", "t", 1, 1, 0.1, (Vote("a:1", "granted"),)),), {
        "count grant.duration": 1, "sum grant.duration": 0,
    }),
    "only-stood-in-line": ((refused("held", attempts=0),), {
        "count acquire.duration outcome=held": 1, "value votes": 0, "value attempts": 0,
    }),
    "held-extended-and-lost": ((
        LeaseExtended("job:7", "t", 9, 20.0, VOTES), LockReleased("job:7", "t", 9, 3.0),
        LeaseLost("job:7", "t", 9, "taken", 4.0), LeaseLost("job:8", "u", None, "max_hold", 5.0),
    ), {
        "value extensions": 1, "value votes": 4, "count hold.duration": 3, "sum hold.duration": 12.0, "value losses": 2,
        "value losses reason=taken": 1, "value losses reason=max_hold": 1,
    }),
    "an-outage": ((MasterUp("a:1", 0.0), MasterUp("[::1]:2", 0.0), MasterDown("a:1", "refused"), QuorumLost(VOTES)), {
        "value master.up master=a:1": 0, "value master.up": 1, "value quorum.losses": 1, "value quorum.recoveries": 0,
    }),
    "its-end": ((MasterDown("a:1", "refused"), QuorumLost(VOTES), MasterUp("a:1", 0.0), QuorumBack()), {
        "value master.up master=a:1": 1, "value quorum.losses": 1, "value quorum.recoveries": 1,
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted(observed, name):
    events, figures = COUNTED[name]
    observed.tell(*events)
    for figure, expected in figures.items():
        read, measure, *labels = figure.split()
        found = getattr(observed, read)(f"redlock.{measure}", **dict(label.split("=") for label in labels))
        assert found == expected, figure


class Clock:
    """What observers and a dashboard look at."""

    now = 1e9

    def time(self):
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (_measures, otel, prometheus):
        monkeypatch.setattr(module, "time", clock)
    return clock


def quarantined(observed, master, clock):
    """As a dashboard would show it."""
    if hasattr(observed.system, "registry"):
        return observed.value("redlock.master.quarantine.end.timestamp.seconds", master=master) > clock.now
    return observed.value("redlock.master.quarantined", master=master) == 1


def test_quarantine(observed, clock):
    """R21; it passes though no event says so."""
    ends = {"a:1": 60.0, "b:2": 0.0, "c:3": math.inf, "d:4": 60.0, "e:5": 59.0}
    fast = MasterClock("f:6", 0.083, math.inf)  # its vote does not count (R43)
    observed.tell(*(MasterUp(master, end) for master, end in ends.items()), MasterDown("d:4", "refused"), fast)
    clock.now += 59.5
    assert [master for master in (*ends, "f:6") if quarantined(observed, master, clock)] == ["a:1", "c:3", "f:6"]
    name = "redlock.master.clock.error.ratio" if hasattr(observed.system, "registry") else "redlock.master.clock_error"
    assert observed.value(name, master="f:6") == 0.083


def waits_for(observed, clock):
    """As a dashboard would show it."""
    if hasattr(observed.system, "registry"):
        return clock.now - observed.value("redlock.oldest.wait.start.timestamp.seconds")
    return observed.value("redlock.wait.oldest")


def test_who_waits_and_for_how_long(observed, clock):
    """R40; time passes though no event says so."""
    observer = observed.tell(WaitBegan("job", 1))
    clock.now += 10
    observer(WaitBegan("job", 2))
    clock.now += 5
    assert observed.value("redlock.waiters") == 2
    assert waits_for(observed, clock) == 15
    observer(WaitEnded("job", 1))
    observer(WaitBegan("job", 3))
    clock.now += 1
    assert observed.value("redlock.waiters") == 2
    assert waits_for(observed, clock) == 6
    observer(WaitEnded("job", 2))
    observer(WaitEnded("job", 3))
    assert observed.value("redlock.waiters") == 0
    assert waits_for(observed, clock) <= 0, "an alert for more than a minute is silent"


def test_which_leases_are_held(observed, clock):
    """R40; one that was resumed is known by its extension, and one whose masters were closed is held while it is valid."""
    over = replace(ACQUIRED, remaining=-1.0)
    mine = LockAcquired("job:8", "u", 9, 1, 0.1, VOTES, (), 60.0)
    observer = observed.tell(over, mine, LeaseExtended("job:9", "v", 9, 20.0, VOTES))
    assert observed.value("redlock.leases") == 2
    observer(LockReleased("job:8", "u", 9, 3.0))
    observer(LeaseLost("job:9", "v", 9, "taken", 3.0))
    assert observed.value("redlock.leases") == 0
    observer(replace(ACQUIRED, remaining=20.0))
    clock.now += 19.9
    assert observed.value("redlock.leases") == 1
    clock.now += 0.2
    assert observed.value("redlock.leases") == 0


# -- what a lock is counted under --------------------------------------------------------------------

EVERY = (
    ACQUIRED, refused("held"), LeaseExtended("job:7", "t", 9, 20.0, VOTES), LockReleased("job:7", "t", 9, 3.0),
    LeaseLost("job:7", "t", 9, "taken", 4.0),
)  # fmt: skip
BY_LOCK = [
    ("redlock.acquire.duration", "count"), ("redlock.grant.duration", "count"), ("redlock.hold.duration", "count"),
    ("redlock.attempts", ""), ("redlock.extensions", ""), ("redlock.losses", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "labels"), [({}, {None}), ({"label": lambda name: name.partition(":")[0]}, {"job"})]
)
def test_names_of_locks_are_no_labels_unless_somebody_says_which(observed, options, labels):
    observed.tell(*EVERY, **options)
    for name, part in BY_LOCK:
        assert observed.labels(name, "lock", part) == labels, name
    assert observed.labels("redlock.votes", "lock") == {None}


def test_labels_do_not_explode(observed, caplog):
    """Not even if the function returns the name."""
    observer = observed.make(label=str, max_labels=3)
    for number in range(50):
        observer(LockReleased(f"job:{number}", "t", 9, 1.0))
    observer(LockReleased("job:1", "t", 9, 1.0))
    assert observed.labels("redlock.hold.duration", "lock", "count") == {"job:0", "job:1", "job:2", "other"}
    assert observed.count("redlock.hold.duration", lock="other") == 47
    assert observed.count("redlock.hold.duration", lock="job:1") == 2
    assert len(caplog.records) == 1
    assert "3 labels" in caplog.text


@pytest.mark.parametrize(("label", "told"), [
    ({"a": "fine"}.__getitem__, "KeyError"), ({"a": "fine"}.get, "None"), ({"a": "fine", "b": 7, "c": 7}.get, "7"),
])  # fmt: skip
def test_a_label_function_that_fails_or_returns_no_str_is_told_of_once(observed, caplog, label, told):
    observed.tell(*(LockReleased(name, "t", 9, 1.0) for name in "abc"), label=label)
    assert observed.count("redlock.hold.duration", lock="fine") == 1
    assert observed.count("redlock.hold.duration", lock="other") == 2
    assert len(caplog.records) == 1
    assert told in caplog.text


@pytest.mark.parametrize("label", ['with "quotes"\\', "two\nlines", "", "Zoë", "\ud800"], ids=ascii)
def test_any_label_can_be_read_back(observed, label):
    observed.tell(LockReleased("a", "t", 9, 1.0), label=lambda name: label)
    expected = "?" if label == "\ud800" else label
    assert observed.labels("redlock.hold.duration", "lock", "count") == {expected}


@pytest.mark.parametrize(("options", "said"), [
    ({"label": "lock"}, "label='lock': allowed is a function"),
    ({"label": str, "max_labels": 0}, "max_labels=0: allowed is a whole number"),
    ({"label": str, "max_labels": True}, "max_labels=True"),
    ({"label": str, "max_labels": 1.5}, "max_labels=1.5"),
])  # fmt: skip
def test_wrong_options(observed, options, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        observed.make(**options)


# -- threads -----------------------------------------------------------------------------------------


def test_many_threads_count_everything(observed):
    observer = observed.make(label=str, max_labels=4)
    begin = threading.Barrier(8)

    def work(number):
        begin.wait()
        for one in range(200):
            observer(LockReleased(f"job:{(number + one) % 9}", "t", 9, 1.0))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert observed.count("redlock.hold.duration") == 1600
    assert len(observed.labels("redlock.hold.duration", "lock", "count")) == 5


def test_a_finalizer_counts_something_while_a_label_is_added():
    """It runs in any thread, in the middle of anything."""
    labels, ended = Labels(str, 3), threading.Event()

    def count():
        with labels._adding:
            labels("job")
        ended.set()

    threading.Thread(target=count, daemon=True).start()
    assert ended.wait(20)
