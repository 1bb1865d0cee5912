"""Functions of which each call holds the lock that its arguments name (R30)."""

import re
import threading

import pytest

from redlock import Masters, NotAcquired, QuorumUnreachable, WouldDeadlock
from tests.owners import witness
from tests.servers.look import eventually, nothing_left, take

pytestmark = witness("R30")


@pytest.fixture
def locked(redlock_masters):
    return redlock_masters.synchronized


def test_each_call_holds_the_lock_that_its_arguments_name(redlock_servers, others, locked):
    @locked("invoice:{number}:{kind}", ttl=10)
    def pay(number, kind="bill", *, fails=False):
        if fails:
            raise ZeroDivisionError
        return [others.lock(name).locked() for name in (f"invoice:{number}:{kind}", "invoice:2:bill")]

    assert pay(1) == [True, False]
    assert pay(number=2) == [True, True]
    assert pay(1, kind="copy") == [True, False]
    with pytest.raises(ZeroDivisionError):
        pay(2, fails=True)
    eventually(lambda: nothing_left(redlock_servers))


def test_what_is_done_if_somebody_else_has_it(others, locked):
    calls = []

    def body(job):
        calls.append(job)
        return job

    with others.lock("job:a", ttl=10) as lease:
        with pytest.raises(NotAcquired, match=rf"held by {re.escape(lease.owner)}\s") as caught:
            locked("job:{job}", on_busy="raise")(body)("a")
        assert type(caught.value) is NotAcquired
        with pytest.raises(NotAcquired):  # it waits, as `with` does, but not for ever
            locked("job:{job}", timeout=0.2)(body)("a")
        assert locked("job:{job}", on_busy="skip")(body)("a") is None
        assert locked("job:{job}", on_busy="skip", busy="busy")(body)("a") == "busy"
        assert locked("job:{job}", on_busy="skip", busy="busy", timeout=0.2)(body)("a") == "busy"
        assert calls == []
        assert locked("job:{job}", on_busy="skip", busy="busy")(body)("b") == "b"
    assert calls == ["b"]


@pytest.mark.parametrize(
    "options", [{}, {"timeout": 10}, {"on_busy": "raise", "timeout": 10}, {"on_busy": "skip", "timeout": 10}]
)
def test_who_waits_gets_it(others, locked, options):
    held = others.lock("job:a", ttl=10, bound=False)
    take(held)
    release = threading.Timer(0.1, held.release)
    function = locked("job:{job}", **options)(lambda job: job)
    release.start()
    try:
        assert function("a") == "a"
    finally:
        release.join()


def test_an_outage_is_not_somebody_else():
    with Masters(["redis://127.0.0.1:1"]) as nobody:
        function = nobody.synchronized("{job}", on_busy="skip")(lambda job: job)
        with pytest.raises(QuorumUnreachable):
            function("a")


def test_an_error_of_the_body_is_never_taken_for_busy(locked):
    raised = NotAcquired("of the body")

    @locked("job:{job}", on_busy="skip", busy="busy")
    def body(job):
        raise raised

    with pytest.raises(NotAcquired) as caught:
        body("a")
    assert caught.value is raised


def test_a_call_inside_of_a_call(redlock_servers, locked):
    """R26: with the same names it is the same lease, though each call has a lock of its own."""

    @locked("job:{job}")
    def again(job, left):
        return again(job, left - 1) if left else job

    @locked(lambda job: [f"job:{job}", "more"])
    def more(job):
        return job

    assert again("a", 2) == "a"
    with pytest.raises(WouldDeadlock):
        locked("job:{job}")(lambda job: [more(job)])("a")
    eventually(lambda: nothing_left(redlock_servers))
