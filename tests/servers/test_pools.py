"""Threads that serve one request after the other: each request holds for itself (R26, R15)."""

import asyncio
import contextlib
import contextvars
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import anyio.to_thread
import httpx
import pytest
from fastapi import Depends, FastAPI

from tests.servers.look import eventually, nothing_left

SHORT: dict[str, Any] = {"ttl": 0.9, "timeout": 10}


def in_a_thread(work):
    """What ``work()`` returns, in a thread that has ended by then."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@contextlib.contextmanager
def section(masters, seen):
    with masters.lock("invoice:42", **SHORT) as lease:
        seen.append(lease.fence)
        yield lease


# -- FastAPI ---------------------------------------------------------------------------------------------


class Requests:
    """How many are in the section at once, and with which fences."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.fences: list[int] = []

    async def work(self, lease: Any) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.fences.append(lease.fence)
        await asyncio.sleep(0.1)
        assert lease.valid
        self.inside -= 1


async def serve(app: FastAPI, count: int, workers: int = 40) -> None:
    anyio.to_thread.current_default_thread_limiter().total_tokens = workers
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answers = await asyncio.gather(*(client.get("/") for _ in range(count)))
    assert [answer.status_code for answer in answers] == [200] * count


@pytest.mark.parametrize("workers", [1, 2, 40])
def test_fastapi_requests_through_a_synchronous_dependency(redlock_servers, redlock_masters, workers):
    """It is entered in a thread of a pool, which the next request gets while the first one is in its section."""
    requests = Requests()

    def locked():
        with redlock_masters.lock("invoice:42", **SHORT) as lease:
            yield lease

    app = FastAPI()

    @app.get("/")
    async def pay(lease: Annotated[Any, Depends(locked)]) -> None:
        await requests.work(lease)

    asyncio.run(serve(app, 6, workers))
    assert requests.most == 1
    assert requests.fences == sorted(set(requests.fences))
    assert len(requests.fences) == 6
    eventually(lambda: nothing_left(redlock_servers))


def test_a_dependency_that_needs_the_lock_of_another_one(redlock_masters):
    """One request asks twice: in copies of a context that was not made while it was held, so its own short wait ends it."""
    refused: list[bool] = []

    def first():
        with redlock_masters.lock("invoice:42", **SHORT) as lease:
            yield lease

    def second(lease: Annotated[Any, Depends(first)]):
        refused.append(redlock_masters.lock("invoice:42", ttl=0.9).acquire(timeout=0.05) is None)
        return lease

    app = FastAPI()

    @app.get("/")
    async def pay(lease: Annotated[Any, Depends(second)]) -> None:
        assert lease.valid

    asyncio.run(serve(app, 1))
    assert refused == [True]


# -- generators in pools ---------------------------------------------------------------------------------


def test_a_generator_that_was_entered_in_a_thread_that_has_ended_keeps_its_lease(redlock_servers, redlock_masters):
    """R15: a thread of a pool idles out, and the request goes on."""
    held = section(redlock_masters, [])
    lease = in_a_thread(held.__enter__)
    assert not lease.wait_lost(2.5 * SHORT["ttl"])
    assert lease.valid
    in_a_thread(lambda: held.__exit__(None, None, None))
    assert (lease.valid, lease.lost) == (False, False)
    eventually(lambda: nothing_left(redlock_servers))


def test_calls_with_contexts_of_their_own_in_one_thread_wait_for_each_other(redlock_servers, redlock_masters):
    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:

        def call(work, *args):
            return pool.submit(contextvars.copy_context().run, work, *args)

        first, second = section(redlock_masters, seen), section(redlock_masters, seen)
        call(first.__enter__).result()
        entering = call(second.__enter__)
        assert redlock_masters.lock("invoice:42", ttl=0.9).acquire(timeout=0.2) is None
        assert not entering.done()
        in_a_thread(lambda: first.__exit__(None, None, None))  # the thread that entered is waiting
        entering.result()
        call(second.__exit__, None, None, None).result()
    assert len(set(seen)) == 2
    eventually(lambda: nothing_left(redlock_servers))


def test_what_a_suspended_generator_holds_is_not_the_next_caller_s(redlock_masters):
    """Neither to release, nor to extend, nor to be told that it owns it."""
    lock = redlock_masters.lock("invoice:42", **SHORT)

    def items():
        with lock as lease:
            yield lease

    generator = items()
    contextvars.copy_context().run(next, generator)
    assert not lock.owned()
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.extend()
    assert lock.lease is not None
    assert lock.lease.valid
    generator.close()
    assert not lock.lease.valid


# -- what shares a context enters again ------------------------------------------------------------------


@pytest.mark.parametrize("how", ["with", "acquire"])
def test_a_copy_of_the_context_enters_again_if_it_was_made_meanwhile(redlock_servers, redlock_masters, how):
    lock = redlock_masters.lock("invoice:42", **SHORT)
    before = contextvars.copy_context()
    with contextlib.ExitStack() as stack:
        if how == "with":
            lease = stack.enter_context(lock)
        else:
            lease = lock.acquire()
            stack.callback(lock.release)
        again = redlock_masters.lock("invoice:42", **SHORT)
        copied = contextvars.copy_context()
        assert copied.run(again.acquire) is lease
        copied.run(again.release)
        assert before.run(again.acquire, timeout=0.05) is None
        # As threads may inherit contexts: only the thread that entered enters again.
        assert in_a_thread(lambda: copied.run(again.acquire, timeout=0.05)) is None
        assert lease.valid
    eventually(lambda: nothing_left(redlock_servers))


def test_what_was_acquired_by_hand_is_its_thread_s_in_every_context(redlock_servers, redlock_masters):
    """C10: as the cells of a notebook do, which may have a context each."""
    lock = redlock_masters.lock("invoice:42", **SHORT)
    assert contextvars.copy_context().run(lock.acquire)
    assert lock.owned()
    lock.extend()
    contextvars.copy_context().run(lock.release)
    eventually(lambda: nothing_left(redlock_servers))


# -- pytest fixtures of every scope ----------------------------------------------------------------------

FIXTURES = """
import pytest
from redlock import Masters

@pytest.fixture(scope="session")
def masters():
    with Masters({urls!r}, restart_guard=False) as ours:
        yield ours

def holding(scope):
    @pytest.fixture(scope=scope, name=f"of_{{scope}}")
    def held(masters):
        with masters.lock(f"fixture:{{scope}}", ttl=10) as lease:
            yield lease
    return held

SCOPES = ["session", "module", "class", "function"]
of_session, of_module, of_class, of_function = map(holding, SCOPES)

class TestScopes:
    @pytest.mark.parametrize("scope", SCOPES)
    @pytest.mark.parametrize("time", [1, 2])
    def test_enters_again(self, request, masters, scope, time):
        lease = request.getfixturevalue(f"of_{{scope}}")
        with masters.lock(f"fixture:{{scope}}", ttl=10, timeout=1) as again:
            assert again is lease
        assert lease.valid
"""


def test_fixtures_that_hold_and_tests_that_enter_again(redlock_servers, tmp_path):
    """In a process of their own: what a session holds stays until it ends."""
    (tmp_path / "test_fixtures.py").write_text(FIXTURES.format(urls=redlock_servers.urls))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert "8 passed" in done.stdout, done.stdout
    eventually(lambda: nothing_left(redlock_servers))
