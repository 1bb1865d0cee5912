"""What the log says of a lock that does not become free, and of a body that outlives its lease (R45)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.bench import scene
from tests.owners import proves

pytestmark = proves("R45")


def records(at):
    return [text for text in at.log if "of waiting" in text]


def holds(at, seconds, **options):
    yield from at.takes("job", lasts=seconds, owner="web-3/17", **options)


def waits(at, came, **options):
    yield at.sleep(came)
    lock = at.masters.lock("job", **options)
    if (yield lock.acquire) is not None:
        yield lock.release


def sees(at, says, until):
    """Each of these records comes at its moment, and no other one."""
    for number, (moment, text) in enumerate(says.items(), 1):
        yield from at.until(lambda number=number: len(records(at)) >= number)
        assert at.exactly(moment)
        assert text in records(at)[-1]
    yield at.sleep(until - at.now)
    assert len(records(at)) == len(says)


WAITS: dict[str, Any] = {  # for whom a process waits, how, and what it says: first, and a minute later
    "its owner": ({}, {}, "WARNING 'job' not acquired after 10 s of waiting: held by web-3/17 (", "…) for 71 s"),
    "readers": ({"shared": True}, {}, "held by readers", "'job' not acquired after 70 s of waiting: held by readers"),
    "in order": ({"fair": True}, {"fair": True}, "…) for 11 s", "…) 70 s ago"),
}


@scene()
@pytest.mark.parametrize("who", WAITS)
def test_a_process_that_waits_says_for_whom_after_ten_seconds_and_each_minute(who):
    """One record for all of its waiters, when the first one has waited for ten seconds."""
    held, waited, first, next_ = WAITS[who]
    comes = [partial(waits, came=came, **waited) for came in (1.0, 2.0, 30.0, 65.0)]
    says = {11.0: first, 71.0: next_}
    return [partial(holds, seconds=129.0, **held), (*comes, partial(sees, says=says, until=128.0))]


@scene()
def test_a_holder_of_the_same_process_is_in_the_way_as_well():
    says = {13.0: "held by another thread or task of this process for 13 s"}
    comes = [partial(waits, came=came, timeout=100.0) for came in (3.0, 4.0)]
    return [(partial(holds, seconds=40.0), *comes, partial(sees, says=says, until=45.0))]


@scene()
def test_short_waits_and_candidates_are_not_in_the_log():
    def stands(at):
        yield at.sleep(1.0)
        election = at.masters.leader("job")

        def leads(_):
            election.stop()
            yield at.sleep(0.0)

        yield partial(at.client.kind.stand, election, leads)

    short = [partial(waits, came=came, timeout=9.0) for came in (1.0, 5.0)]
    return [partial(holds, seconds=40.0), stands, (*short, partial(sees, says={}, until=60.0))]


@scene()
def test_masters_that_are_gone_are_an_outage_and_no_holder():
    def outage(at):
        yield at.sleep(2.0)
        at.freeze(3)
        yield from sees(at, {}, until=50.0)
        at.thaw(3)

    return [partial(waits, came=3.0), outage]


@scene(worlds=["threads"])
@pytest.mark.parametrize("kind", ["a lock", "a term"])
def test_at_max_hold_the_log_says_that_the_body_of_a_thread_goes_on(at, kind):
    """... beside others; those have to wait for the end of a leader's."""

    def body(*_):
        yield at.sleep(5.0)
        if kind == "a term":
            election.stop()

    election = at.masters.leader("job", max_hold=2.0)
    if kind == "a term":
        yield partial(at.client.kind.stand, election, body)
    else:
        yield from at.raises(at.errors.LockLost, at.within(at.masters.lock("job", max_hold=2.0), body))
    (text,) = (text for text in at.log if "was lost" in text)
    assert text.endswith("; its body still ran: it goes on in its thread, and others may enter") == (kind == "a lock")
