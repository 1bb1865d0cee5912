"""A lease that is handed over: what is left of it here (C11)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from typing import Any

import pytest

from redlock import ConfigurationError, LockLost, NotHeld, RedlockError
from tests.asyncio.virtual import MASTERS, Deployment, run, virtual

TTL = 10.0
BOUND = pytest.mark.parametrize("bound", [True, False], ids=["bound", "not-bound"])


def held(d: Deployment, token: str, *names: str) -> bool:
    return d.keys() == [{f"redlock:{name}": token for name in names or ("job",)}] * MASTERS


def asked(d: Deployment) -> int:
    return sum(len(fake.heard) for fake in d.fakes)


async def takes_over(d: Deployment, handed: str) -> None:
    """As another process does: nothing of the first holder is left behind it."""
    async with d.masters.resume(handed) as lease:
        assert lease.valid
    await d.quiet()
    assert not any(d.keys())


async def close(d: Deployment) -> None:
    await d.masters.close()
    d.shut()


@virtual(tidy=False)
async def test_it_says_what_another_process_needs(d):
    async with d.masters.lock(["a", "b"], ttl=TTL, owner="web-3", hold_at_least=6.0) as lease:
        await asyncio.sleep(2.0)
        handed = lease.hand_over()
    assert json.loads(handed) == {
        "names": ["a", "b"], "token": lease.token, "fence": lease.fence, "shared": False, "ttl": TTL, "guard": 0.0,
        "hold_at_least": 4.0, "prefix": "redlock:",
    }  # fmt: skip
    async with d.masters.resume(handed) as same:
        assert (same.token, same.fence, same.owner) == (lease.token, lease.fence, "web-3")
    await close(d)


@BOUND
@virtual
async def test_the_end_of_its_with_does_nothing(d, bound):
    """However it is left: by an error, thrown away, by a stack; nor does a lock that is dropped then, which was the holder itself."""

    def lock() -> Any:
        return d.masters.lock("job", ttl=TTL, bound=bound)

    with pytest.raises(ZeroDivisionError) as caught:
        async with lock() as lease:
            handed = lease.hand_over()
            raise ZeroDivisionError
    assert getattr(caught.value, "__notes__", []) == []
    await takes_over(d, handed)

    async with contextlib.AsyncExitStack() as stack:
        handed = (await stack.enter_async_context(lock())).hand_over()
    await takes_over(d, handed)

    taken = lock()
    handed = (await taken.acquire()).hand_over()
    del taken
    gc.collect()
    await d.quiet()
    assert all(d.keys())
    await takes_over(d, handed)

    async def lines():
        async with lock() as lease:
            while True:
                yield lease.hand_over()

    for close in (True, False):
        generator = lines()
        handed = await anext(generator)
        if close:
            await generator.aclose()
        del generator
        gc.collect()
        await d.quiet()
        assert all(d.keys())
        await takes_over(d, handed)


@virtual(tidy=False)
async def test_the_next_waiter_of_this_process_has_its_turn(d):
    """R23: it asks the masters, as a waiter of any other process does."""
    async with d.masters.lock("job", ttl=TTL) as lease:
        waiter = asyncio.create_task(d.masters.lock("job", ttl=TTL).acquire(timeout=60))
        await d.quiet()
        before = asked(d)
        handed = lease.hand_over()
        await d.quiet()
    assert asked(d) > before
    assert not waiter.done()
    async with d.masters.resume(handed):
        pass
    got = await waiter
    assert got.fence > lease.fence
    assert held(d, got.token)
    await close(d)


@virtual
async def test_neither_another_task_nor_an_inner_level_hands_it_over(d):
    """C10; R26: the outer level counts on having it."""
    lock = d.masters.lock("job", ttl=TTL)
    async with lock as lease:

        async def other() -> None:
            with pytest.raises(NotHeld, match="its holder is another task"):
                lease.hand_over()

        await asyncio.create_task(other())
        async with lock as same:
            with pytest.raises(RedlockError, match=r"'job' was entered more than once, .*: hand it over there"):
                same.hand_over()
            assert lease.valid
        handed = lease.hand_over()
    await takes_over(d, handed)


@virtual(tidy=False)
async def test_a_lease_that_is_over_cannot_be_handed_over(d):
    async with d.masters.lock("job", ttl=TTL) as lease:
        pass
    with pytest.raises(LockLost, match="it was released"):
        lease.hand_over()
    lock = d.masters.lock("job", ttl=1.0, auto_extend=False, cancel_on_loss=False)
    lease = await lock.acquire()
    await asyncio.sleep(2.0)
    with pytest.raises(LockLost, match="it expired"):
        lease.hand_over()
    assert lease.lost
    with pytest.raises(LockLost):
        await lock.release()
    with pytest.raises(NotHeld, match="the lock object that acquired 'job' is gone: keep it as well"):
        (await d.masters.lock("job", ttl=TTL).acquire()).hand_over()
    await close(d)


@virtual
async def test_a_term_is_not_handed_over(d):
    """Its number and its body are one: another candidate follows with a greater number."""
    election = d.masters.leader("job", ttl=TTL)

    async def lead(term: Any) -> None:
        with pytest.raises(RedlockError, match=r"'job' belongs to a term, .*: stop the election"):
            term.lease.hand_over()
        assert term.valid
        election.stop()

    await election.run(lead)
    assert not any(d.keys())


def test_from_another_thread_a_lock_that_is_not_bound(caplog):
    """Its loop learns of it: nobody there renews it or gives it back."""

    async def scene(d):
        lock = d.masters.lock("job", ttl=TTL, bound=False)
        lease = await lock.acquire()
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(lease.hand_over()))
        thread.start()
        while thread.is_alive():  # noqa: ASYNC110 - the loop knows of no other thread
            await asyncio.sleep(0)
        thread.join()
        await d.quiet()
        await asyncio.sleep(2 * TTL)
        assert {heard.script for fake in d.fakes for heard in fake.heard} == {"acquire"}
        assert held(d, lease.token)
        await takes_over(d, *found)

    run(scene)
    assert not caplog.records


@pytest.mark.parametrize(("change", "why"), [
    (lambda text: text[:-20], "…: allowed is all of what"),
    (lambda _: "job", "or with token= the names of the lock"),
    (lambda _: None, "handed=None"),
    (lambda text: json.dumps(json.loads(text) | {"token": "x"}), "token='x'"),
    (lambda text: json.dumps(json.loads(text) | {"hold_at_least": -1.0}), "hold_at_least=-1"),
    (lambda text: json.dumps(json.loads(text) | {"prefix": "other:"}), "prefix='redlock:': the lease that was handed"),
])  # fmt: skip
@virtual
async def test_a_text_that_is_another_one_is_refused_when_it_is_given(d, change, why):
    async with d.masters.lock("job", ttl=TTL) as lease:
        handed = lease.hand_over()
    with pytest.raises(ConfigurationError, match=why) as caught:
        d.masters.resume(change(handed))
    assert lease.token not in str(caught.value)
    for twice in ({"fence": 5}, {"ttl": TTL}, {"guard": 0.0}, {"shared": True}):
        with pytest.raises(ConfigurationError, match="the text of hand_over"):
            d.masters.resume(handed, **twice)
    with pytest.raises(TypeError, match="'timeout': allowed are"):
        d.masters.resume(handed, timeout=5)
    await takes_over(d, handed)
