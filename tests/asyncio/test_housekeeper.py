"""When the first operation begins (R2), and what a failure leaves to be done."""

from __future__ import annotations

import asyncio
import threading
from unittest import mock

import pytest

from redlock._core.voters import Facts
from tests.asyncio.virtual import START, run

NEVER = float("inf")


@pytest.mark.parametrize(
    ("decided", "tried", "begins"),
    [
        pytest.param(0.1, 0.15, 0.15, id="all-are-up-or-have-failed"),
        pytest.param(0.1, 0.1, 0.1, id="with-the-last-of-them"),
        pytest.param(0.1, NEVER, 0.2, id="the-others-have-as-long-again"),
        pytest.param(1.5, NEVER, 2.0, id="but-no-longer-than-connect-timeout"),
        pytest.param(NEVER, NEVER, 2.0, id="nobody-answers"),
    ],
)
def test_the_first_operation_waits_for_connections(decided, tried, begins):
    async def scene(d):
        housekeeper = d.driver._housekeeper
        housekeeper.ready.clear()
        d.connections.decide = lambda: d.clock.now >= START + decided
        d.connections.tried = lambda: d.clock.now >= START + tried
        for at in {decided, tried} - {NEVER}:
            d.loop.call_later(at, housekeeper.wake)
        housekeeper.start()
        await housekeeper.ready.wait()
        return d.clock.now - START

    assert run(scene) == pytest.approx(begins, abs=0.005)


def test_what_starting_the_threads_takes_counts_for_the_others_as_well():
    """R2: on a busy machine that may be most of it."""

    async def scene(d):
        housekeeper = d.driver._housekeeper
        housekeeper.ready.clear()
        d.connections.decide = lambda: True
        d.connections.tried = lambda: False
        d.connections.quieten = lambda _: d.clock.advance(0.1) or []  # as if all chores took so long
        housekeeper.start()
        await housekeeper.ready.wait()
        return d.clock.now - START

    assert run(scene) >= 0.2


def test_a_failure_puts_no_chore_off_for_good():
    """P4: it is done a moment later, and then no more."""

    async def scene(d):
        tried = []

        def quieten(now):
            tried.append(now)
            if len(tried) == 1:
                raise ZeroDivisionError
            return []

        d.connections.quieten = quieten
        d.driver._housekeeper.wake()
        await asyncio.sleep(1.0)
        assert len(d.loop.complaints) == 1
        d.loop.complaints.clear()
        return tried

    first, second = run(scene)
    assert second - first < 0.2


def test_a_connection_that_was_torn_while_it_was_taken_over_is_made_again():
    """P4: a Ctrl-C strikes when it is open, and nobody watches it yet."""

    async def scene(d):
        stream, housekeeper = d.connections.all[0], d.driver._housekeeper
        d.hang_up(0)
        await asyncio.sleep(1.0)
        d.fakes[0].connect()
        d.connections.keep(d.fakes[0].theirs)
        made = (d.fakes[0].theirs, Facts("run-0", 10**6))
        with (
            mock.patch.object(d.connections, "_watch", side_effect=ZeroDivisionError),
            pytest.raises(ZeroDivisionError),
        ):
            housekeeper._finish(threading.current_thread(), stream, made)
        assert stream.connector is None
        await asyncio.sleep(1.0)
        again = stream.connector is not None and stream.sock is None
        d.fakes[0].sock.close()
        d.fakes[0].connect()
        d.attach(0)
        return again

    assert run(scene)
