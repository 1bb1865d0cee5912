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
    connections.forget(connections._leader or Waiter(connections.wake_chain))
    connections._polling = False


def held_back(connections) -> bool:
    return bool(connections._asked or connections._cork)


def send(connections, waiter: Waiter) -> Question:
    question = Question(MASTERS)
    connections.send(question, waiter)
    return question


def answered(connections, waiter: Waiter, question: Question) -> bool:
    """By all masters."""
    event = connections.wait(_clock.now() + 5, question, waiter)
    connections.forget(waiter)
    return event is question and not waiter.events and sorted(question.answers) == list(range(MASTERS))


def test_one_alone_writes_at_once(connections):
    waiter = Waiter(connections.wake_chain)
    question = send(connections, waiter)
    assert not held_back(connections)
    assert answered(connections, waiter, question)


def test_what_others_send_leaves_when_the_leader_goes_to_wait(connections):
    leader, others = Waiter(connections.wake_chain), [Waiter(connections.wake_chain) for _ in range(3)]
    connections._leader = leader
    theirs = [send(connections, other) for other in others]
    assert [asked.request for asked in connections._asked] == theirs, "nothing of it was written"
    own = send(connections, leader)  # it stands behind theirs, on the same connection
    assert answered(connections, leader, own)
    for other, question in zip(others, theirs, strict=True):
        assert answered(connections, other, question)


def test_what_others_send_leaves_when_the_leader_stops_leading(connections):
    """Also what nobody waits for, as a release of somebody who was interrupted."""
    leader = Waiter(connections.wake_chain)
    connections._leader = leader
    request = Question(MASTERS)
    request.open = False
    connections.send(request, Waiter(connections.wake_chain))
    assert [asked.request for asked in connections._asked] == [request]
    connections.forget(leader)
    assert not held_back(connections)
    eventually(lambda: all(connection.pipeline.idle for connection in connections.all))


def test_one_who_sits_in_poll_is_not_relied_on(connections):
    connections._leader, connections._polling = Waiter(connections.wake_chain), True
    send(connections, Waiter(connections.wake_chain))
    assert not held_back(connections)


def test_nor_one_who_has_just_begun_to(connections, monkeypatch):
    """It looked for what was asked before we asked."""
    connections._leader = Waiter(connections.wake_chain)

    class JustThen(deque[Any]):
        def append(self, asked):
            super().append(asked)
            connections._polling = True

    monkeypatch.setattr(connections, "_asked", JustThen())
    send(connections, Waiter(connections.wake_chain))
    assert not held_back(connections)


def test_who_waits_quietly_wakes_for_an_event_whatever_it_waited_for_before(connections):
    waiter = Waiter(connections.wake_chain)
    assert isinstance(connections.wait(_clock.now(), Question(3), waiter), Timeout)
    threading.Timer(0.1, lambda: waiter.put(Turn(_clock.now()))).start()
    began = _clock.now()
    assert isinstance(connections.wait_quietly(began + 5, waiter), Turn)
    assert _clock.now() - began < 0.9  # not at the end of a nap


def test_a_leader_that_never_comes_back_is_replaced(connections):
    """It was interrupted where no `finally` helps."""
    connections._leader = Waiter(connections.wake_chain)
    waiter = Waiter(connections.wake_chain)
    question = send(connections, waiter)
    assert [asked.request for asked in connections._asked] == [question]
    assert answered(connections, waiter, question)
