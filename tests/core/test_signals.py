"""Handlers of signals that an election takes over: whatever strikes, and wherever, none is left and no signal is lost."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from redlock._lock.signals import Signals
from tests.servers.interrupt import Interrupt, at_every_line

BOTH = (signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def before():
    """What the two signals did before: they are written down."""
    came: list[int] = []

    def handler(number, _):
        came.append(number)

    replaced = {number: signal.signal(number, handler) for number in BOTH}
    yield came
    left = {signal.getsignal(number) for number in BOTH}
    for number, was in replaced.items():
        signal.signal(number, was)
    assert left == {handler}


class Raised(Interrupt):
    """At the n-th line a signal comes, and its handler raises nothing."""

    def count(self, frame):
        self.left -= 1
        if self.left == 0:
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            self.struck = True
            signal.raise_signal(signal.SIGUSR1)


def runs(stopped):
    """As an election does it."""
    signals = Signals(BOTH, lambda: stopped.append(True))
    try:
        with signals:
            pass
    finally:
        signals.restore()


def test_the_first_signal_stops_and_the_second_one_does_what_it_did(before):
    stopped: list[bool] = []
    with Signals(BOTH, lambda: stopped.append(True)):
        signal.raise_signal(signal.SIGUSR1)
        assert (stopped, before) == ([True], [])
        signal.raise_signal(signal.SIGUSR1)
        assert (stopped, before) == ([True], [signal.SIGUSR1])


def test_an_exception_at_any_line_beside_another_election(before):
    """It goes on, and its signals are its own."""
    handlers = [signal.getsignal(number) for number in BOTH]
    for interrupt in at_every_line(10):
        stopped: list[bool] = []
        with Signals(BOTH, lambda: stopped.append(True)):  # noqa: B023
            with interrupt.strikes():
                runs([])
            signal.raise_signal(signal.SIGUSR2)
            assert stopped == [True]
        assert [signal.getsignal(number) for number in BOTH] == handlers


def test_an_exception_at_any_line_of_the_handler_loses_no_signal(before):
    for interrupt in at_every_line(3):
        stopped: list[bool] = []
        with Signals(BOTH, lambda: stopped.append(True)):  # noqa: B023
            with interrupt.strikes():
                signal.raise_signal(signal.SIGUSR1)
            if not stopped:
                signal.raise_signal(signal.SIGUSR1)
            assert stopped
        assert not before


def test_a_signal_at_any_line_beside_another_election_is_not_lost(before):
    """The first one stops the elections that run.  One that begins later is stopped by the next."""
    for interrupt in at_every_line(10, Raised):
        before.clear()
        first: list[bool] = []
        second: list[bool] = []
        with Signals(BOTH, lambda: first.append(True)):  # noqa: B023
            signals = Signals(BOTH, lambda: second.append(True))  # noqa: B023
            with interrupt.strikes(), signals:
                if not second:
                    signal.raise_signal(signal.SIGUSR1)
                    assert second
            assert first or interrupt.struck
        assert signal.getsignal(signal.SIGUSR1) is signal.getsignal(signal.SIGUSR2)


def test_a_handler_that_calls_the_one_that_it_has_replaced(before):
    """It gets each signal once, and ours does not send it another one for ever."""
    stopped: list[bool] = []
    mine: list[int] = []
    was = signal.getsignal(signal.SIGUSR1)
    with Signals(BOTH, lambda: stopped.append(True)):
        ours: Any = signal.getsignal(signal.SIGUSR1)

        def chained(number, frame):
            mine.append(number)
            ours(number, frame)

        signal.signal(signal.SIGUSR1, chained)
        signal.raise_signal(signal.SIGUSR1)
        assert (len(mine), stopped, before) == (1, [True], [])
    signal.raise_signal(signal.SIGUSR1)
    assert (len(mine), stopped, before) == (2, [True], [signal.SIGUSR1])
    signal.signal(signal.SIGUSR1, was)


def test_a_forked_child_takes_over_for_itself(before):
    """What it has inherited is that of its parent, and passes a signal on."""
    with Signals(BOTH, lambda: os._exit(4)):
        child = os.fork()
        if not child:
            stopped: list[bool] = []
            with Signals(BOTH, lambda: stopped.append(True)):
                os.kill(os.getpid(), signal.SIGUSR1)
                if (stopped, before) != ([True], []):
                    os._exit(5)
                os.kill(os.getpid(), signal.SIGUSR1)  # a second one does what it did
            os._exit(0 if before == [signal.SIGUSR1] else 6)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
