"""Elections, in tasks (R31): how a body is cancelled, and what else is not."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading

import pytest

from redlock import AsyncMasters, AsyncTerm, ConfigurationError, LockLost
from tests.servers.look import eventually, nothing_left

TTL = 2.0


def run(body, servers):
    """``body(masters, others)`` on a loop.  Nothing is left: no cancellation, no task, no key, no handler."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    async def main():
        handler = signal.getsignal(signal.SIGINT)  # asyncio has one of its own
        async with (
            AsyncMasters(servers.urls, restart_guard=False, owner="this") as masters,
            AsyncMasters(servers.urls, restart_guard=False, owner="other") as others,
        ):
            task = asyncio.current_task()
            assert task is not None
            result = await body(masters, others)
            await asyncio.sleep(0)
            assert task.cancelling() == 0
            assert signal.getsignal(signal.SIGINT) is handler
        await until(lambda: asyncio.all_tasks() == {task})  # Python closes a generator that was left in a task
        return result

    result = asyncio.run(main(), debug=True)
    gc.collect()
    eventually(lambda: nothing_left(servers))
    assert handlers == {number: signal.getsignal(number) for number in handlers}
    return result


def take_it_away(servers):
    for number in range(len(servers.urls)):
        servers.client(number).delete("redlock:beat")


async def for_ever(_=None):
    await asyncio.sleep(1000)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - whatever it is about
            await asyncio.sleep(0.005)


def test_a_lost_term_cancels_the_body_and_the_next_one_begins(redlock_servers):
    async def body(masters, _):
        election = masters.leader("beat", ttl=TTL)
        numbers, messages = [], []
        async for term in election.terms():
            async with term:
                assert election.term is term
                numbers.append(term.number)
                if len(numbers) == 3:
                    election.stop()
                await asyncio.to_thread(take_it_away, redlock_servers)
                try:
                    await for_ever()
                except asyncio.CancelledError as error:
                    messages.append(str(error))
                    raise
            assert election.term is None
        assert numbers == sorted(set(numbers))
        assert [message.split(" ", 2)[2] for message in messages] == ["of 'beat' was lost"] * 2
        # The third one was stopped, and cancelled at its first await.

    run(body, redlock_servers)


def test_run_calls_everything_once(redlock_servers):
    async def body(masters, _):
        election = masters.leader("beat", ttl=TTL)
        calls = []

        async def lead(term):
            calls.append(("lead", term.number))
            if len(calls) == 3:
                election.stop()
                return
            await asyncio.to_thread(take_it_away, redlock_servers)
            await for_ever()

        async def on_stopped(term):
            await asyncio.sleep(0)
            calls.append(("stopped", term.number))

        await election.run(lead, on_stopped)
        first, second = calls[0][1], calls[2][1]
        assert calls == [("lead", first), ("stopped", first), ("lead", second), ("stopped", second)]

    run(body, redlock_servers)


def test_a_stop_cancels_the_body_and_hands_over_when_that_has_ended(redlock_servers):
    async def body(masters, others):
        ended = []

        async def lead(_):
            try:
                await for_ever()
            finally:
                await asyncio.sleep(0.2)
                ended.append(not (await others.status("beat")).token)

        async def follow(term):
            assert ended == [False]  # it was still ours when the body ended
            ended.append(term.owner)
            await for_ever()

        seen: list[str] = []
        first, second = masters.leader("beat", ttl=30), others.leader("beat", ttl=30)
        leading = asyncio.create_task(first.run(lead))
        await until(lambda: first.term)
        following = asyncio.create_task(second.run(follow, on_new_leader=seen.append))
        await until(lambda: seen == ["this"])
        first.stop()
        await leading
        await until(lambda: ended == [False, "other"])
        second.stop()
        await following

    run(body, redlock_servers)


def test_a_stop_in_a_campaign_and_from_another_thread(redlock_servers):
    async def body(masters, others):
        async for term in masters.leader("beat", ttl=30).terms():
            async with term:
                waiting = others.leader("beat")
                task = asyncio.create_task(waiting.run(for_ever))
                await asyncio.sleep(0.2)
                assert not task.done()
                threading.Thread(target=waiting.stop).start()
                await asyncio.wait_for(task, 20)
            break

    run(body, redlock_servers)


def test_a_signal_stops_it(redlock_servers):
    async def body(masters, _):
        election = masters.leader("beat", ttl=30)
        cancelled = []

        async def lead(_):
            signal.raise_signal(signal.SIGTERM)
            try:
                await for_ever()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        await election.run(lead)
        assert cancelled == [True]

    run(body, redlock_servers)


def test_a_cancellation_from_outside_goes_on(redlock_servers):
    """Also if the term ends at the same time.  The lock is given back before (C13)."""

    async def body(masters, _):
        for at_once in (False, True):
            election = masters.leader("beat", ttl=30)
            stopped: list[AsyncTerm] = []
            task = asyncio.create_task(election.run(for_ever, stopped.append))
            await until(lambda: election.term)  # noqa: B023
            task.cancel()
            if at_once:
                election.stop()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(stopped) == 1
            assert not (await masters.status("beat")).token

    run(body, redlock_servers)


def test_a_campaign_that_is_cancelled_leaves_nothing(redlock_servers):
    async def body(masters, others):
        async for term in masters.leader("beat", ttl=30).terms():
            async with term:
                task = asyncio.create_task(others.leader("beat").run(for_ever))
                await asyncio.sleep(0.1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            break

    run(body, redlock_servers)


def test_a_body_that_ignores_its_cancellation_is_waited_for(redlock_servers):
    """Another one may lead meanwhile.  It campaigns again only when its body has ended."""

    async def body(masters, others):
        election = masters.leader("beat", ttl=TTL)
        terms, led, go_on = [], [], asyncio.Event()

        async def lead(term):
            terms.append(term.number)
            if len(terms) == 2:
                election.stop()
                return
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    other = others.leader("beat", ttl=30)
                    async for one in other.terms():
                        async with one:
                            led.append(one.number)
                            other.stop()
                            go_on.set()

        task = asyncio.create_task(election.run(lead))
        await until(lambda: terms)
        await asyncio.to_thread(take_it_away, redlock_servers)
        await task
        assert terms[0] < led[0] < terms[1]
        assert (len(terms), len(led)) == (2, 1)

    run(body, redlock_servers)


def test_what_the_body_raises_when_it_is_cancelled_goes_on(redlock_servers):
    async def body(masters, _):
        election = masters.leader("beat", ttl=30)

        async def lead(_):
            election.stop()
            try:
                await for_ever()
            finally:
                raise ValueError("while it cleaned up")

        with pytest.raises(ValueError, match="cleaned up"):
            await election.run(lead)

    run(body, redlock_servers)


def test_an_error_is_retried_and_a_stop_ends_the_pause(redlock_servers, caplog):
    async def body(masters, _):
        election = masters.leader("beat", ttl=30)
        failed = asyncio.Event()

        async def lead(_):
            failed.set()
            raise ValueError("the disk is full")

        task = asyncio.create_task(election.run(lead, on_error="retry"))
        await failed.wait()
        await until(lambda: "trying again" in caplog.text)
        election.stop()
        await asyncio.wait_for(task, 20)

    run(body, redlock_servers)


def test_ensure_may_leave_the_body_and_another_loss_is_an_error(redlock_servers):
    async def body(masters, _):
        election = masters.leader("beat", ttl=TTL)
        async for term in election.terms():
            async with term:
                election.stop()
                term.ensure(at_least=1000.0)

        async def lead(_):
            raise LockLost("the lease on 'invoice' was lost", name="invoice", reason="taken")

        with pytest.raises(LockLost, match="invoice"):
            await masters.leader("beat").run(lead)

    run(body, redlock_servers)


def test_a_loop_that_is_left_gives_the_term_back(redlock_servers):
    async def body(masters, others):
        async for left in masters.leader("beat", ttl=30).terms():  # noqa: B007
            break
        assert left.valid  # for as long as somebody has it
        del left
        gc.collect()
        async for term in others.leader("beat", ttl=30).terms():
            async with term:
                pass
            break

    run(body, redlock_servers)


def test_a_run_that_is_thrown_away_gives_the_term_back(redlock_servers):
    """Its election is still there, and must not keep the lease."""

    async def body(masters, others):
        election = masters.leader("beat", ttl=30)
        task = asyncio.create_task(election.run(for_ever))
        await until(lambda: election.term)
        coroutine = task.get_coro()
        assert coroutine is not None
        coroutine.close()
        del coroutine
        gc.collect()
        async for term in others.leader("beat", ttl=30).terms():  # long before the TTL
            async with term:
                pass
            break
        assert election.term is None
        task.cancel()
        await asyncio.wait([task])
        task.exception()

    run(body, redlock_servers)


def test_wrong_arguments_of_run(redlock_servers):
    async def body(masters, _):
        election = masters.leader("beat")
        for arguments in ({"lead": print}, {"lead": for_ever, "on_stopped": 3}, {"lead": for_ever, "on_error": "no"}):
            with pytest.raises(ConfigurationError):
                await election.run(**arguments)

    run(body, redlock_servers)
