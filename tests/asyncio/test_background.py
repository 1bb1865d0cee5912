"""When the first operation begins (R2), and what a failure leaves to be done."""

from __future__ import annotations

import asyncio
import itertools
import socket
from unittest import mock

import pytest

from redlock._connect import Connector
from redlock._core.outcomes import Failure
from redlock._core.pipeline import Pipeline
from redlock._core.voters import Facts
from tests.asyncio.virtual import NODE_TIMEOUT, START, Question, asks, virtual

NEVER = float("inf")


@pytest.mark.parametrize(("decided", "tried", "chores", "begins"), [
    pytest.param(0.1, 0.15, 0.0, 0.15, id="all-are-up-or-have-failed"),
    pytest.param(0.1, 0.1, 0.0, 0.1, id="with-the-last-of-them"),
    pytest.param(0.1, NEVER, 0.0, 0.2, id="the-others-have-as-long-again"),
    pytest.param(1.5, NEVER, 0.0, 2.0, id="but-no-longer-than-connect-timeout"),
    pytest.param(NEVER, NEVER, 0.0, 2.0, id="nobody-answers"),
    # On a busy machine that may be most of it.
    pytest.param(0.0, NEVER, 0.1, 0.2, id="what-starting-the-threads-takes-counts-for-the-others-as-well"),
])  # fmt: skip
@virtual
async def test_the_first_operation_waits_for_connections(d, decided, tried, chores, begins):
    driver = d.driver
    driver.ready.clear()
    took = iter([chores])
    d.connections.quieten = lambda _: d.clock.advance(next(took, 0.0))
    d.connections.decide = lambda: d.clock.now >= START + decided
    d.connections.tried = lambda: d.clock.now >= START + tried
    for at in {decided, tried} - {NEVER}:
        d.loop.call_later(at, driver.tick_at)
    driver._connect()
    await driver.ready.wait()
    assert d.clock.now - START == pytest.approx(begins, abs=0.005)


@virtual
async def test_a_failure_puts_no_chore_off_for_good(d):
    """P4: it is done a moment later, and then no more."""
    tried = []

    def quieten(now):
        tried.append(now)
        if len(tried) == 1:
            raise ZeroDivisionError

    d.connections.quieten = quieten
    d.driver.tick_at()
    await asyncio.sleep(1.0)
    assert len(d.loop.complaints) == 1
    d.loop.complaints.clear()
    first, second = tried
    assert second - first < 0.2


@virtual
async def test_what_is_overdue_is_not_put_off_by_what_is_due_later(d):
    """P6: where a loop was blocked, an acquire that came first put off by `node_timeout` that a loss is told."""
    done = mock.Mock()
    d.connections.quieten = done
    d.driver.tick_at(START + 0.1)
    d.clock.advance(0.5)  # something blocks the loop
    d.driver.tick_at(d.clock.now + NODE_TIMEOUT)
    await asyncio.sleep(1.0)
    assert done.call_args_list[0].args[0] - START == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("at", ["watch", "due"])
@virtual
async def test_a_connection_that_was_torn_while_it_was_taken_over_is_made_again(d, at):
    """P4: a Ctrl-C strikes when it is open, and nobody watches it yet, or it has not got what it is owed."""
    stream, driver = d.connections.all[0], d.driver
    d.hang_up(0)
    await asyncio.sleep(1.0)
    d.fakes[0].connect()
    d.host.keep(d.fakes[0].theirs)
    made = (d.fakes[0].theirs, Facts("run-0", 10**6))
    strikes = mock.patch.object(d.host if at == "watch" else Pipeline, at, side_effect=ZeroDivisionError)
    with strikes, pytest.raises(ZeroDivisionError):
        driver.background._finish(stream, made)
    assert stream.connector is None
    await asyncio.sleep(1.0)
    again = stream.connector is not None and stream.sock is None
    d.fakes[0].sock.close()
    d.fakes[0].connect()
    d.attach(0)
    assert again


def _connecting(d, ends):
    """Attempts to connect last two seconds, and end as ``ends(stream)`` says.  Returns when each began."""
    began = []
    driver = d.driver

    def start(stream):
        began.append(d.clock.now - START)
        stream.connector = Connector(stream.endpoint, 0.0)
        d.loop.call_later(2.0, end, stream)

    def end(stream):
        driver.background._finish(stream, ends(stream))

    driver.background._start_connecting = start
    return began


def _refused(stream):
    return Failure("timeout", "no connection", sent=False)


async def _ask(d, need=5):
    question = Question(need)
    await d.driver.run(asks(question, d.clock.now + NODE_TIMEOUT))
    return question


@virtual
async def test_a_frozen_master_is_not_flooded_with_connections(d):
    """One at a time beside the silent one, and less and less often; all of them count once it goes on."""
    began = _connecting(d, _refused)
    d.mute(0)
    await _ask(d, 4)
    await asyncio.sleep(120.0)
    pauses = [later - earlier - 2.0 for earlier, later in itertools.pairwise(began)]
    d.speak()
    await d.quiet()
    before = len(began)
    await asyncio.sleep(60.0)
    assert len(began) == before
    assert 2 * NODE_TIMEOUT < began[0] < 4 * NODE_TIMEOUT
    assert 10 <= len(began) <= 40
    assert all(1.0 <= pause < 10.1 for pause in pauses)


@virtual
async def test_one_that_answers_while_the_new_one_is_made_stays(d):
    """A master that went on in between: its old connection is as good as the new one."""
    before, (ours, theirs) = d.fakes[0].theirs, socket.socketpair()
    _connecting(d, lambda _: (ours, Facts("run-0", 10**6)))
    d.mute(0)
    await _ask(d, 4)
    await asyncio.sleep(1.0)
    d.speak()
    await asyncio.sleep(5.0)
    assert d.connections.all[0].sock is before
    closed = ours.fileno() == -1
    theirs.close()
    assert closed


@virtual
async def test_our_own_process_stood_still_and_the_answer_is_there(d):
    """No second connection is made: the master has answered long ago."""
    began = _connecting(d, _refused)
    question = Question(5)
    asking = asyncio.ensure_future(d.driver.run(asks(question, d.clock.now + 65.0)))
    await asyncio.sleep(0)  # it has asked, and nothing was read
    d.clock.advance(60.0)
    await asking
    await asyncio.sleep(5.0)
    assert began == []
