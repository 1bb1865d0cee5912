"""A finalizer or a signal handler that uses the masters that it has interrupted, wherever that was.

The garbage collector runs `__del__`, and closes generators, in any thread and in the middle of anything.  A handler of
`signal.signal` runs between any two instructions of the main thread.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from functools import partial

import pytest

from redlock import AsyncMasters, Masters, RedlockError
from redlock._io.process import brief
from tests.servers.interrupt import Interrupt
from tests.servers.look import Doing, all_up, eventually, nothing_left
from tests.servers.process import run, soon

INSIDE = "interrupted this thread in the middle of a call of these Masters"
LONG = 60  # seconds: it stands still


def watched(function):
    """Call ``function`` in a thread, and wait for it."""
    ended = Doing(function).end(LONG)
    if isinstance(ended, BaseException):
        raise ended


class Often(Interrupt):
    """Calls ``use`` at each line of so many that this library executes, until it says that it is enough."""

    no_place = ()

    def __init__(self, every, use, thread=""):
        super().__init__(every)
        self.use = use
        self.thread = thread  # only in threads of this name
        self.active = not thread
        self.done = self.refused = 0

    def __call__(self, frame, event, arg):
        return super().__call__(frame, event, arg) if self.thread in threading.current_thread().name else None

    def count(self, frame):
        if not self.active:
            return
        self.left -= 1
        if self.left == 0:
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            try:
                self.active = self.use() is not ENOUGH
                self.done += 1
            except RedlockError as error:
                if INSIDE not in str(error):
                    raise
                self.refused += 1
            self.left = self.at


ENOUGH = object()
MANY = 150  # times


def held(masters, count):
    """Locks that any thread may release; each is held."""
    locks = [masters.lock(f"held-{number}", ttl=50, bound=False, timeout=20) for number in range(count)]
    for lock in locks:
        assert lock.acquire().valid
    return locks


def release(masters):
    locks = held(masters, MANY)

    def release_one():
        locks[-1].release()
        assert not locks.pop().owned()
        return locks or ENOUGH

    return release_one


def leave(masters):
    """As the collector closes a generator that stands inside of a ``with``."""

    def lines(number):
        with masters.lock(f"line-{number}", ttl=50, timeout=20):
            yield

    generators = [lines(number) for number in range(MANY)]
    for generator in generators:
        next(generator)

    def leave_one():
        generators.pop().close()
        return generators or ENOUGH

    return leave_one


def acquire(masters):
    numbers = itertools.count()

    def take_one():
        with masters.lock(f"new-{next(numbers)}", timeout=0):
            pass

    return take_one


def asks(make):
    """``make``: makes what asks the masters, and gives nothing back."""

    def begin(masters):
        ask, numbers = make(masters), itertools.count()

        def ask_once():
            number = next(numbers)
            ask()
            return number < MANY or ENOUGH

        return ask_once

    return begin


GIVES_BACK = {"release": release, "leave": leave}
ASKS = {
    "acquire": asks(acquire),
    "extend": asks(lambda masters: held(masters, 1)[0].extend),
    "status": asks(lambda masters: lambda: masters.status("job")),
    "locked": asks(lambda masters: masters.lock("job").locked),
    "held": asks(lambda masters: lambda: list(masters.held("job"))),
    "check": asks(lambda masters: masters.check),
    "wait": asks(lambda masters: lambda: masters.wait_until_free("free", 0)),
}
USES: dict[str, Callable[[Masters], Callable[[], object]]] = {**GIVES_BACK, **ASKS}
FAST = [one for one in USES if one != "check"]  # that takes a second


@pytest.fixture
def mine(redlock_servers):
    """Not closed if the test fails: that might wait for ever."""
    masters = Masters(redlock_servers.urls, restart_guard=False, node_timeout=1.0)
    watched(lambda: eventually(lambda: all_up(masters)))
    yield masters
    watched(masters.close)


def work(masters, name="job"):
    """All that takes the locks of the library."""
    lock = masters.lock(name, ttl=30, timeout=20)
    with lock as lease:
        assert lock.extend().valid
        assert masters.status(name).token == lease.token


LOCKS = {
    "guard": lambda driver: driver.host.mutex,
    "line and leases": lambda _: brief.lock,
    "renewals": lambda driver: driver.background.renewer.mutex.lock,
}


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("use", USES)
def test_inside_of_each_lock_of_the_library(redlock_servers, mine, lock, use):
    """The exact case: nothing waits for itself; what cannot be done is refused, and a release is done all the same."""

    def scene():
        once, (driver,) = USES[use](mine), mine._runtime.drivers.values()
        with LOCKS[lock](driver):
            if use in GIVES_BACK or lock == "renewals":
                once()
            else:
                with pytest.raises(RedlockError, match=INSIDE):
                    once()
        work(mine)
        while use in GIVES_BACK and once() is not ENOUGH:
            pass

    watched(scene)
    if use != "extend":
        eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("lock", [lock for lock in LOCKS if lock != "renewals"])
def test_a_hand_over_inside_of_a_lock_of_the_library(mine, lock):
    """Refused: the next one of this process would not learn of it, and would wait for ever (R23)."""

    def scene():
        (driver,), [giver] = mine._runtime.drivers.values(), held(mine, 1)
        with LOCKS[lock](driver), pytest.raises(RedlockError, match=INSIDE):
            giver.lease.hand_over()
        assert giver.owned()

    watched(scene)


@pytest.mark.parametrize("lock", LOCKS)
def test_closed_inside_of_each_lock_of_the_library(mine, lock):
    """Refused, or closed: close does not wait for its thread where that waits for this lock."""

    def scene():
        (driver,) = mine._runtime.drivers.values()
        with (
            LOCKS[lock](driver),
            pytest.raises(RedlockError, match=INSIDE) if lock != "renewals" else contextlib.nullcontext(),
        ):
            mine.close()
        if lock != "renewals":
            work(mine)

    watched(scene)


@pytest.mark.parametrize("use", FAST)
@pytest.mark.parametrize("every", [31, 37])
def test_at_any_line_of_a_caller(redlock_servers, mine, use, every):
    often = Often(every, USES[use](mine))

    def scene():
        with often.tracing():
            while often.active:
                work(mine)
        work(mine)

    watched(scene)
    assert often.done > MANY / 5
    assert bool(often.refused) == (use in ASKS)
    if use != "extend":
        eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("use", FAST)
def test_at_any_line_of_the_background(redlock_servers, use):
    """It renews all leases, and looks after the connections."""
    often = Often(29, None, "redlock-background")
    threading.settrace(often)
    masters = Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.5)

    def scene():
        eventually(lambda: all_up(masters))
        often.use = USES[use](masters)
        with masters.lock("kept", ttl=2, timeout=20) as lease:
            often.active = True
            eventually(
                lambda: masters.status("job").votes and not often.active
            )  # the background reads its late answers
            until = lease.valid_until
            eventually(lambda: lease.valid_until > until)  # and renews
        masters.close()

    try:
        watched(scene)
    finally:
        threading.settrace(None)
    assert bool(often.refused) == (use in ASKS)


@pytest.mark.parametrize("thread", ["", "redlock-background"], ids=["caller", "background"])
def test_closed_at_any_line(redlock_servers, thread):
    """Closed or refused, and nothing stands still."""
    refused = closed = 0

    def scene(at):
        nonlocal refused, closed
        masters = Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.5)

        def close():
            masters.close()
            return ENOUGH

        close_once = Often(at, close, thread)
        threading.settrace(close_once if thread else None)
        eventually(lambda: all_up(masters))
        threading.settrace(None)
        close_once.active = True
        try:
            with close_once.tracing() if not thread else contextlib.nullcontext():
                for _ in range(30):
                    work(masters, f"job-{at}")  # the close may leave its key: it releases no lease that is held
        except RedlockError as error:
            if "were closed" not in str(error):
                raise
        masters.close()
        eventually(lambda: not close_once.active or close_once.left)  # else it is still in there
        refused, closed = refused + close_once.refused, closed + close_once.done

    try:
        for at in range(5, 700, 29):
            watched(partial(scene, at))
    finally:
        threading.settrace(None)
    assert closed
    assert refused


# -- as they come ------------------------------------------------------------------------------------------


# These print nothing to stderr.  With a `node_timeout` of 0.25 s, a busy machine makes the library warn of an outage there.
SIGNALLED = """
import itertools, signal
from redlock import Masters, RedlockError
masters, others = [Masters({urls!r}, restart_guard=False, node_timeout=1.5) for _ in range(2)]
numbers, heard = itertools.count(), set()

def handle(*_):
    try:
        with masters.lock(f"handler-{{next(numbers)}}", timeout=0):
            heard.add("taken")
    except RedlockError as error:
        assert "interrupted this thread" in str(error), error
        heard.add("refused")
    if mine:
        mine.pop().release()
    signal.setitimer(signal.ITIMER_REAL, 0.002)

mine = [masters.lock(f"mine-{{number}}", bound=False) for number in range(300)]
for lock in mine:
    lock.acquire()
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.002)
held = others.lock("held", bound=False)
held.acquire()
while mine or heard != {{"taken", "refused"}}:
    with masters.lock("job", timeout=20):
        pass
assert masters.lock("held").acquire(timeout=0.5) is None  # it waits in poll()
signal.signal(signal.SIGALRM, signal.SIG_IGN)
held.release()
masters.close()
others.close()
print("done")
"""


def test_a_signal_handler_that_takes_and_gives_back_locks(redlock_servers):
    done = run("-W", "error", "-c", SIGNALLED.format(urls=redlock_servers.urls))
    assert (done.stdout, done.stderr) == ("done\n", "")
    eventually(lambda: nothing_left(redlock_servers))


ENDED = """
import asyncio, contextvars, gc
from redlock import AsyncMasters, Masters, RedlockError
masters, other = Masters({urls!r}, restart_guard=False, node_timeout=1.5), contextvars.ContextVar("other")

class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        try:
            with masters.lock("job", timeout=0), masters.lock("job", timeout=0):
                pass
        except RedlockError:
            pass

async def main():
    async with AsyncMasters({urls!r}, restart_guard=False, node_timeout=1.5) as tasks:
        for number in range(1200):
            gc.set_threshold(1 + number % 400)
            Cycle()
            async with tasks.lock("another"):
                other.set(number)

asyncio.run(main())
masters.close()
print("done")
"""


def test_a_lock_that_a_finalizer_takes_where_a_context_variable_is_set(redlock_servers):
    """The collector of Python 3.11 runs in there, and a second `ContextVar.set` in there ended the interpreter."""
    done = run("-W", "error", "-c", ENDED.format(urls=redlock_servers.urls))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("every", [31, 37])
def test_what_is_thrown_away_at_any_line_of_the_loop(redlock_servers, every):
    """The loop gives its lease back a moment later, and not in the middle of what it reads or writes."""

    async def main():
        async with AsyncMasters(redlock_servers.urls, restart_guard=False) as masters:

            async def lines(number):
                async with masters.lock(f"line-{number}", ttl=50, timeout=20):
                    yield

            generators = [lines(number) for number in range(MANY)]
            for generator in generators:
                await anext(generator)

            def throw_away():
                with contextlib.suppress(StopIteration):
                    generators.pop().aclose().send(None)
                return generators or ENOUGH

            async def job(number):
                while often.active:
                    async with masters.lock(f"job-{number}", timeout=20):
                        pass

            often = Often(every, throw_away)
            with often.tracing():
                await asyncio.gather(*map(job, range(3)))
            await soon(lambda: nothing_left(redlock_servers))

    watched(lambda: asyncio.run(main()))
