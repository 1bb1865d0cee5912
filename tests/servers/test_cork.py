"""Who leads writes for all threads: `redlock/_threads/connections.py`."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from redlock import _clock
from redlock._core.effects import Timeout, Turn
from redlock._threads.waiter import Waiter
from tests.asyncio.virtual import MASTERS, Question
from tests.servers.look import all_up, eventually, take


@pytest.fixture
def connections(redlock_masters):
    eventually(lambda: all_up(redlock_masters))
    take(redlock_masters.lock("warm", ttl=10))
    connections = redlock_masters._driver._connections
    yield connections
    (connections.leader or Waiter(connections)).stop_waiting()
    connections.polling = False


def held_back(connections) -> bool:
    return bool(connections.asked or connections.corked)


def send(connections, waiter: Waiter) -> Question:
    question = Question(MASTERS)
    connections.send(question, waiter)
    return question


def answered(connections, waiter: Waiter, question: Question) -> bool:
    """By all masters."""
    event = waiter.wait(_clock.now() + 5, question)
    waiter.stop_waiting()
    return event is question and not waiter.events and sorted(question.answers) == list(range(MASTERS))


def test_one_alone_writes_at_once(connections):
    waiter = Waiter(connections)
    question = send(connections, waiter)
    assert not held_back(connections)
    assert answered(connections, waiter, question)


def test_what_others_send_leaves_when_the_leader_goes_to_wait(connections):
    leader, others = Waiter(connections), [Waiter(connections) for _ in range(3)]
    connections.leader = leader
    theirs = [send(connections, other) for other in others]
    assert [asked.request for asked in connections.asked] == theirs, "nothing of it was written"
    own = send(connections, leader)  # it stands behind theirs, on the same connection
    assert answered(connections, leader, own)
    for other, question in zip(others, theirs, strict=True):
        assert answered(connections, other, question)


def test_what_others_send_leaves_when_the_leader_stops_leading(connections):
    """Also what nobody waits for, as a release of somebody who was interrupted."""
    leader = Waiter(connections)
    connections.leader = leader
    request = Question(MASTERS)
    request.open = False
    connections.send(request, Waiter(connections))
    assert [asked.request for asked in connections.asked] == [request]
    leader.stop_waiting()
    assert not held_back(connections)
    eventually(lambda: all(connection.pipeline.idle for connection in connections.all))


def test_one_who_sits_in_poll_is_not_relied_on(connections):
    connections.leader, connections.polling = Waiter(connections), True
    send(connections, Waiter(connections))
    assert not held_back(connections)


def test_nor_one_who_has_just_begun_to(connections, monkeypatch):
    """It looked for what was asked before we asked."""
    connections.leader = Waiter(connections)

    class JustThen(deque[Any]):
        def append(self, asked):
            super().append(asked)
            connections.polling = True

    monkeypatch.setattr(connections, "asked", JustThen())
    send(connections, Waiter(connections))
    assert not held_back(connections)


def test_who_waits_quietly_wakes_for_an_event_whatever_it_waited_for_before(connections):
    waiter = Waiter(connections)
    assert isinstance(waiter.wait(_clock.now(), Question(3)), Timeout)
    threading.Timer(0.1, lambda: waiter.put(Turn(_clock.now()))).start()
    began = _clock.now()
    assert isinstance(waiter.wait(began + 5, quiet=True), Turn)
    assert _clock.now() - began < 0.9  # not at the end of a nap


def test_a_leader_that_never_comes_back_is_replaced(connections):
    """It was interrupted where no `finally` helps."""
    connections.leader = Waiter(connections)
    waiter = Waiter(connections)
    question = send(connections, waiter)
    assert [asked.request for asked in connections.asked] == [question]
    assert answered(connections, waiter, question)
