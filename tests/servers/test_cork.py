"""Who leads writes for all threads: `redlock/_threads/links.py`."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from redlock import _clock
from redlock._core.effects import Timeout, Turn, Wait
from redlock._threads.waiter import Waiter
from tests.asyncio.virtual import MASTERS, Question
from tests.servers.look import all_up, eventually, take


@pytest.fixture
def links(redlock_masters):
    eventually(lambda: all_up(redlock_masters))
    take(redlock_masters.lock("warm", ttl=10))
    links = redlock_masters._driver._links
    yield links
    links.forget(links._leader or Waiter(links.relay))
    links._polling = False


def held_back(links) -> bool:
    return bool(links._asked) or any(link.backlog for link in links.all)


def send(links, waiter: Waiter) -> Question:
    question = Question(MASTERS)
    links.send(question, waiter)
    return question


def answered(links, waiter: Waiter, question: Question) -> bool:
    """By all masters."""
    event = links.wait(Wait(_clock.now() + 5, closes=question), waiter)
    links.forget(waiter)
    return event is question and not waiter.events and sorted(question.answers) == list(range(MASTERS))


def test_one_alone_writes_at_once(links):
    waiter = Waiter(links.relay)
    question = send(links, waiter)
    assert not held_back(links)
    assert answered(links, waiter, question)


def test_what_others_send_leaves_when_the_leader_goes_to_wait(links):
    leader, others = Waiter(links.relay), [Waiter(links.relay) for _ in range(3)]
    links._leader = leader
    theirs = [send(links, other) for other in others]
    assert [asked.request for asked in links._asked] == theirs, "nothing of it was written"
    own = send(links, leader)  # it stands behind theirs, on the same connection
    assert answered(links, leader, own)
    for other, question in zip(others, theirs, strict=True):
        assert answered(links, other, question)


def test_what_others_send_leaves_when_the_leader_stops_leading(links):
    """Also what nobody waits for, as a release of somebody who was interrupted."""
    leader = Waiter(links.relay)
    links._leader = leader
    request = Question(MASTERS)
    request.open = False
    links.send(request, Waiter(links.relay))
    assert [asked.request for asked in links._asked] == [request]
    links.forget(leader)
    assert not held_back(links)
    eventually(lambda: all(link.pipeline.idle for link in links.all))


def test_one_who_sits_in_poll_is_not_relied_on(links):
    links._leader, links._polling = Waiter(links.relay), True
    send(links, Waiter(links.relay))
    assert not held_back(links)


def test_nor_one_who_has_just_begun_to(links, monkeypatch):
    """It looked for what was asked before we asked."""
    links._leader = Waiter(links.relay)

    class JustThen(deque[Any]):
        def append(self, asked):
            super().append(asked)
            links._polling = True

    monkeypatch.setattr(links, "_asked", JustThen())
    send(links, Waiter(links.relay))
    assert not held_back(links)


def test_who_waits_quietly_wakes_for_an_event_whatever_it_waited_for_before(links):
    waiter = Waiter(links.relay)
    assert isinstance(links.wait(Wait(_clock.now(), closes=Question(3)), waiter), Timeout)
    threading.Timer(0.1, lambda: waiter.put(Turn(_clock.now()))).start()
    began = _clock.now()
    assert isinstance(links.wait(Wait(began + 5, quiet=True), waiter), Turn)
    assert _clock.now() - began < 0.9  # not at the end of a nap


def test_a_leader_that_never_comes_back_is_replaced(links):
    """It was interrupted where no `finally` helps."""
    links._leader = Waiter(links.relay)
    waiter = Waiter(links.relay)
    question = send(links, waiter)
    assert [asked.request for asked in links._asked] == [question]
    assert answered(links, waiter, question)
