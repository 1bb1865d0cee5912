"""Clients with different `max_ttl`: the largest says for how long a master that has restarted may not vote (R21)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.bench import scene
from tests.owners import proves
from tests.scenes.test_agreement import gets

SHORT, LONG = 4.0, 40.0  # an announcement counts for twice that
ANNOUNCED = "redlock-max-ttl:redlock:"
THREE: dict[str, Any] = {"masters": 3, "guard": True, "max_ttl": LONG, "ttl": 3.0}


def restart_two(at):
    """Without their memory.  The third one has what was announced."""
    at.kill([0, 1])
    at.start([0, 1])


def begins(at, until):
    """``yield from`` it: masters with the short one, which are in use."""
    yield at.sleep(1.0)
    masters = yield partial(at.client.make, max_ttl=SHORT)
    assert (yield from gets(at, of=masters))
    yield at.sleep(until - at.now)
    return masters


def waits(at, masters):
    """``yield from`` it: when does it get the lock?"""
    while not (yield from gets(at, of=masters)):
        yield at.sleep(0.5)
    return at.now


def once(at):
    """A client with the long one is there for a moment."""
    assert (yield from gets(at))
    yield at.masters.close


@proves("R21")
@scene(**THREE)
def test_no_restart_lets_two_in_whoever_announces_less():
    def long(at):
        """It is there for nearly as long as one announcement counts, and its lease is for longer."""
        assert (yield from gets(at))
        yield at.sleep(75.0 - at.now)
        yield at.masters.lock("job", ttl=36.0, auto_extend=False).acquire
        at.crash()
        yield at.sleep(1.0)

    def short(at):
        masters = yield from begins(at, 82.0)
        restart_two(at)
        assert 82.0 + LONG <= (yield from waits(at, masters)) < 82.0 + LONG + 3.0
        yield masters.close

    return [long, short]


@scene(**THREE)
def test_a_wrong_one_ends_by_itself():
    def short(at):
        masters = yield from begins(at, 60.0)
        restart_two(at)
        assert 2 * LONG <= (yield from waits(at, masters)) < 2 * LONG + 4.0
        yield at.sleep(100.0 - at.now)
        restart_two(at)
        assert 100.0 + SHORT <= (yield from waits(at, masters)) < 100.0 + SHORT + 3.0
        assert sum("different max_ttl: 4 s here, 40 s announced" in line for line in at.log) == 1
        yield masters.close

    return [once, short]


@scene(**THREE)
@pytest.mark.parametrize(("deleted", "counts"), [([1, 2], LONG), ([0, 1, 2], SHORT)])
def test_what_a_master_has_forgotten_counts_to_its_end_and_what_somebody_deletes_is_gone(deleted, counts):
    """The next announcement tells a client that it was deleted.  A master that comes back empty tells nothing."""

    def short(at):
        masters = yield from begins(at, 2.0)
        at.put(ANNOUNCED, None, masters=deleted)
        yield at.sleep(8.0)
        restart_two(at)
        assert 10.0 + counts <= (yield from waits(at, masters)) < 10.0 + counts + 3.0
        yield masters.close

    return [once, short]
