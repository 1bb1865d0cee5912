"""An exception strikes an election anywhere: nothing is left, and who was told to begin is told to end (R31, P7)."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

import pytest

import redlock
from redlock import AsyncMasters
from redlock._lock import election as of_both, election_async as of_tasks, election_threads as of_threads, signals
from tests.servers.interrupt import Interrupt, at_every_line
from tests.servers.look import eventually, nothing_left

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class InElection(Interrupt):
    """At the lines of elections alone: what strikes an acquire is looked at elsewhere."""

    files = tuple(str(module.__file__) for module in (of_tasks, of_both, of_threads, signals))
    # Right in front of these calls it is noted that they begin.  The interpreter looks for signals nowhere in between.
    calls = ("lead(term)", "await lead(term)", "on_stopped(term)", "told = on_stopped(term)", "left = uncancel()")

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename not in self.files:
            return None
        return super().__call__(frame, event, arg)

    def count(self, frame):
        if self.text(frame) not in self.calls:
            super().count(frame)


@pytest.fixture(autouse=True)
def _nothing_is_left(redlock_servers):
    handlers = [signal.getsignal(number) for number in SIGNALS]
    yield
    gc.collect()
    eventually(lambda: nothing_left(redlock_servers))
    assert [signal.getsignal(number) for number in SIGNALS] == handlers


def in_pairs(calls):
    """Each body that began was told of once, right behind it."""
    return calls in ([], ["lead", "stopped"])


def test_a_run_that_is_struck_at_any_line(redlock_masters):
    """The exceptions are kept, as a debugger does.  What their frames refer to leads no more."""
    handlers = [signal.getsignal(number) for number in SIGNALS]
    kept: list[object] = []
    for interrupt in at_every_line(60, InElection):
        election = redlock_masters.leader("beat", ttl=30)
        calls: list[str] = []

        def lead(_):
            calls.append("lead")  # noqa: B023
            election.stop()  # noqa: B023

        try:
            with interrupt.tracing():
                election.run(lead, on_stopped=lambda _: calls.append("stopped"))  # noqa: B023
        except KeyboardInterrupt as error:
            interrupt.struck = True
            kept.append((error, election))
        assert in_pairs(calls)
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
        with redlock_masters.lock("beat", timeout=10):  # long before the end of a TTL
            pass
    assert kept


def test_an_asynchronous_run_that_is_struck_at_any_line(redlock_servers):
    kept: list[object] = []
    handler = signal.getsignal(signal.SIGINT)
    for interrupt in at_every_line(60, InElection):
        calls: list[str] = []

        async def scene():
            async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
                election = masters.leader("beat", ttl=30)

                async def lead(_):
                    calls.append("lead")  # noqa: B023
                    election.stop()
                    await asyncio.sleep(10)

                try:
                    with interrupt.tracing():  # noqa: B023
                        await election.run(lead, on_stopped=lambda _: calls.append("stopped"))  # noqa: B023
                except KeyboardInterrupt as error:
                    interrupt.struck = True  # noqa: B023
                    kept.append((error, election))
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0
                async with masters.lock("beat", timeout=10):
                    pass

        try:
            asyncio.run(scene())
        except KeyboardInterrupt:  # in a callback of the loop: the run was cancelled, and asyncio's own handler stays
            interrupt.struck = True
            signal.signal(signal.SIGINT, handler)
        assert in_pairs(calls)
    assert kept


@pytest.fixture
def swallowed(monkeypatch):
    """What was raised in a generator that is closed because nobody has it any more: Python swallows that."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.mark.parametrize("where", ["loop", "with"])
def test_a_loop_over_terms_that_is_struck_at_any_line(redlock_masters, where, swallowed):
    kept: list[object] = []
    for interrupt in at_every_line(30, InElection):
        election = redlock_masters.leader("beat", ttl=30)

        def scene():
            for term in election.terms():  # noqa: B023
                if where == "with":
                    with term:
                        pass
                kept.append(term)
                break

        try:
            with interrupt.tracing():
                scene()
        except KeyboardInterrupt as error:
            interrupt.struck = True
            kept.append(error)
        with redlock_masters.lock("beat", timeout=10):
            pass


@pytest.mark.parametrize("where", ["loop", "with"])
def test_an_asynchronous_loop_over_terms_that_is_struck_at_any_line(redlock_servers, where, swallowed):
    kept: list[object] = []
    for interrupt in at_every_line(30, InElection):

        async def scene():
            async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
                try:
                    with interrupt.tracing():  # noqa: B023
                        async for term in masters.leader("beat", ttl=30).terms():
                            if where == "with":
                                async with term:
                                    pass
                            kept.append(term)
                            break
                except KeyboardInterrupt as error:
                    interrupt.struck = True  # noqa: B023
                    kept.append(error)
                async with masters.lock("beat", timeout=10):
                    pass

        try:
            asyncio.run(scene())
        except KeyboardInterrupt:  # in a callback of the loop
            interrupt.struck = True


def test_a_body_that_forks_and_the_child_stands_in_an_election_of_its_own(redlock_servers, redlock_masters):
    """A SIGTERM ends that one in order, and no other one."""
    codes = []

    def lead(term):
        child = os.fork()
        if not child:
            calls: list[str] = []

            def in_child(_):
                calls.append("lead")
                os.kill(os.getpid(), signal.SIGTERM)

            with redlock.Masters(redlock_servers.urls, restart_guard=False) as masters:
                masters.leader("child", ttl=30).run(in_child, on_stopped=lambda _: calls.append("stopped"))
                free = masters.status("child").token is None
            os._exit(0 if calls == ["lead", "stopped"] and free and not term.valid else 7)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        assert not term.should_stop
        election.stop()

    election = redlock_masters.leader("beat", ttl=30)
    election.run(lead)
    assert codes == [0]
