"""An exception strikes an election anywhere: nothing is left, and who was told to begin is told to end (R31, P7)."""

import asyncio
import gc
import signal
import sys
from pathlib import Path

import pytest

from redlock import AsyncMasters
from redlock._lock import election as of_both, election_async as of_tasks, election_threads as of_threads, signals
from tests.servers.interrupt import Interrupt, at_every_line
from tests.servers.look import eventually, nothing_left

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class InElection(Interrupt):
    """At the lines of elections alone: what strikes an acquire is looked at elsewhere."""

    files = tuple(str(module.__file__) for module in (of_tasks, of_both, of_threads, signals))
    # Right in front of these calls it is noted that they begin.  The interpreter looks for signals nowhere in between.
    lead, told = "running.lead(term)", "running.on_stopped(term)"
    calls = (lead, f"await {lead}", told, f"answer = {told}")

    missing = set(calls) - {line.strip() for file in files for line in Path(file).read_text().splitlines()}
    assert not missing, missing

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


@pytest.fixture(params=["run", "loop", "with"])
def how(request, monkeypatch):
    """A run, or a loop over terms: what is raised in its generator when nobody has that any more Python swallows."""
    if request.param != "run":
        monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    return request.param


def lines(how):
    return at_every_line(60 if how == "run" else 30, InElection)


def in_pairs(calls):
    """Each body that began was told of once, right behind it."""
    return calls in ([], ["lead", "stopped"])


def test_in_a_thread(redlock_masters, how):
    """The exceptions are kept, as a debugger does.  What their frames refer to leads no more."""
    handlers = [signal.getsignal(number) for number in SIGNALS]
    kept: list[object] = []
    calls: list[str] = []

    def leads(election):
        def lead(_):
            calls.append("lead")
            election.stop()

        if how == "run":
            election.run(lead, on_stopped=lambda _: calls.append("stopped"))
            return
        for term in election.terms():
            if how == "with":
                with term:
                    pass
            kept.append(term)
            break

    for interrupt in lines(how):
        calls.clear()
        election = redlock_masters.leader("beat", ttl=30)
        try:
            with interrupt.tracing():
                leads(election)
        except KeyboardInterrupt as error:
            interrupt.struck = True
            kept.append((error, election))
        assert in_pairs(calls)
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
        with redlock_masters.lock("beat", timeout=10):  # long before the end of a TTL
            pass
    assert kept


def test_in_a_task(redlock_servers, how):
    kept: list[object] = []
    calls: list[str] = []
    handler = signal.getsignal(signal.SIGINT)

    async def leads(election):
        async def lead(_):
            calls.append("lead")
            election.stop()
            await asyncio.Event().wait()  # until it is cancelled

        if how == "run":
            await election.run(lead, on_stopped=lambda _: calls.append("stopped"))
            return
        async for term in election.terms():
            if how == "with":
                async with term:
                    pass
            kept.append(term)
            break

    async def scene(interrupt):
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:
            election = masters.leader("beat", ttl=30)
            try:
                with interrupt.tracing():
                    await leads(election)
            except KeyboardInterrupt as error:
                interrupt.struck = True
                kept.append((error, election))
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            async with masters.lock("beat", timeout=10):
                pass

    for interrupt in lines(how):
        calls.clear()
        try:
            asyncio.run(scene(interrupt))
        except KeyboardInterrupt:  # in a callback of the loop: the run was cancelled, and asyncio's own handler stays
            interrupt.struck = True
            signal.signal(signal.SIGINT, handler)
        assert in_pairs(calls)
    assert kept
