"""One body for both worlds: a test is written as for threads, and runs on an event loop as well.

    def test_it(world, redlock_servers):
        with world.Masters(redlock_servers.urls) as masters, masters.lock("job") as lease:
            assert isinstance(lease, world.Lease)

With threads ``world.Masters`` is just `redlock.Masters`.  With asyncio it is a front of `AsyncMasters`,
whose loop runs in a thread of its own.  For each thread of the test one task on that loop does what the
thread asks for, call by call, so "a lock belongs to the thread that acquired it" says of tasks what it
says of threads.
"""

import asyncio
import contextlib
import functools
import gc
import inspect
import threading
import weakref
from concurrent.futures import Future
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any

import redlock
from redlock._io.runtime import DRIVERS
from tests.servers.needs import missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._io.connections import Connections

NAMES = ("threads", "asyncio", "uvloop")
_PATIENCE = 5.0  # with what should have ended by now, in seconds
_ON_LOOP = (
    redlock.AsyncMasters, redlock.AsyncMultiLock, redlock.AsyncSlots, redlock.AsyncLease, redlock.AsyncElection,
    redlock.AsyncTerm, AsyncGeneratorType,
)  # fmt: skip
_WITH_BODIES = (redlock.AsyncMasters.lock, redlock.AsyncMasters.slots)


@contextlib.contextmanager
def opened(name):
    """The world of that name; whatever is left in it at the end is an AssertionError.

    It is Any to type checkers, as neither world's classes are right for a body that is for both.
    """
    if name == "threads":
        yield Threads()
        return
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if name == "uvloop":
        try:
            import uvloop  # noqa: PLC0415 - nobody else needs it
        except ImportError:
            missing("uvloop")
        new_loop = uvloop.new_event_loop
    world = OnLoop(name, new_loop())
    try:
        yield world
    finally:
        world.close()


class Threads:
    """What is there anyway."""

    name = "threads"
    Masters = redlock.Masters
    MultiLock = redlock.MultiLock
    Lease = redlock.Lease

    def connections(self, masters):
        """To look at, behind the library's back."""
        return masters._runtime.driver()._connections


class OnLoop:
    """A loop that runs in a thread of its own, and who does calls there."""

    def __init__(self, name, loop):
        self.name = name
        self.Masters = _FrontOfClass(self, redlock.AsyncMasters)
        self.MultiLock = _FrontOfClass(self, redlock.AsyncMultiLock)
        self.Lease = _FrontOfClass(self, redlock.AsyncLease)
        self._loop = loop
        self._complaints: list[str] = []
        self._own = threading.local()
        self._deputies: list[_Deputy] = []
        # By the identity of what they stand for, which they keep alive.
        self._fronts: weakref.WeakValueDictionary[int, _Front] = weakref.WeakValueDictionary()
        self._making = threading.Lock()
        loop.set_debug(True)  # a callback from the wrong thread is an error, for one
        loop.set_exception_handler(self._complain)
        self._thread = threading.Thread(target=loop.run_forever, name=f"loop of the test: {name}")
        self._thread.start()

    # -- what is only for looking --------------------------------------------------------------------

    def connections(self, masters):
        """To look at, behind the library's back."""
        (driver,) = self.real(masters)._runtime.drivers.values()
        connections: Connections = driver._connections
        return connections

    # -- calls ---------------------------------------------------------------------------------------

    @property
    def deputy(self):
        """That of the calling thread."""
        # Else it would wait for itself.  A wait strategy, for instance, is asked on the loop.
        assert threading.current_thread() is not self._thread, "a callback on the loop may not use a front"
        deputy: _Deputy | None = getattr(self._own, "deputy", None)
        if deputy is None:
            self._own.deputy = deputy = _Deputy(self._loop)
            self._deputies.append(deputy)
        return deputy

    def do(self, work, *arguments, **options):
        """Call ``work`` in the task of the calling thread, and await what it returns if that is a coroutine."""
        if work is redlock.AsyncMultiLock or getattr(work, "__func__", None) in _WITH_BODIES:
            # A body here runs in a thread, which cannot be cancelled; the deputy must not be, instead of it.
            options.setdefault("cancel_on_loss", False)
        arguments = tuple(self.real(argument) for argument in arguments)
        options = {name: self.real(option) for name, option in options.items()}
        return self._front_of(self.deputy.do(functools.partial(work, *arguments, **options)))

    @staticmethod
    def real(value):
        return value._real if isinstance(value, _Front) else value

    def _front_of(self, value):
        """The same one for the same object: ``is`` has to go on being right."""
        if not isinstance(value, _ON_LOOP):
            return value
        with self._making:
            return self._fronts.setdefault(id(value), _Front(self, value))

    # -- the end -------------------------------------------------------------------------------------

    def close(self):
        """Nothing is left: no task, no connection, no thread, and nobody had to complain."""
        try:
            asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop).result(3 * _PATIENCE)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE)
            if not self._thread.is_alive():  # else a callback hangs, and its loop cannot be closed
                self._loop.close()
        assert not self._thread.is_alive()
        assert not self._complaints, "\n".join(self._complaints)

    async def _wind_up(self):
        for deputy in self._deputies:
            deputy.dismiss()
        ours: set[asyncio.Task[Any]] = {deputy.task for deputy in self._deputies}
        myself = asyncio.current_task()
        foreign = [task for task in asyncio.all_tasks() if task is not myself and task not in ours]
        self._complaints += [f"a task is left: {task!r}" for task in foreign]
        busy = (await asyncio.wait(ours, timeout=_PATIENCE))[1] if ours else set()
        self._complaints += [f"a call has not ended: {task!r}" for task in busy]
        for task in (*foreign, *busy):
            task.cancel()
        if foreign or busy:
            await asyncio.wait((*foreign, *busy), timeout=_PATIENCE)
        gc.collect()  # what was destroyed too early, or raised what nobody looked at, complains now
        for one in list(DRIVERS):
            if getattr(one, "loop", None) is self._loop:
                self._complaints.append(f"masters were not closed: {one._connections.all}")
                one.shut()

    def _complain(self, loop, context):
        self._complaints.append(f"{context['message']}: {context.get('exception')!r} {context}")


class _Deputy:
    """The task that stands for one thread of the test, from its first call until the end of the world.

    Where the library cancels it while the thread is at work, what the thread asks for next raises that instead: a real
    task is always at an await then.
    """

    task: asyncio.Task[None]

    def __init__(self, loop):
        self._loop = loop
        self._calls: asyncio.Queue[tuple[functools.partial[Any], Future[Any]] | None] = asyncio.Queue()
        self._dismissed = False
        self._cancelled: asyncio.CancelledError | None = None
        self._loop.call_soon_threadsafe(self._begin, threading.current_thread().name)

    # -- in the thread -------------------------------------------------------------------------------

    def do(self, work):
        answer: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (work, answer))
        return answer.result()

    # -- on the loop ---------------------------------------------------------------------------------

    def _begin(self, name):
        self.task = self._loop.create_task(self._work(), name=f"deputy of {name}")

    async def _work(self):
        while await self._next():
            pass

    async def _next(self):
        """Do the next call.  One frame for each: nothing of it is kept alive while waiting for the next."""
        call = await self._next_call()
        if call is None:
            return False
        work, answer = call
        cancelled, self._cancelled = self._cancelled, None
        if cancelled:
            answer.set_exception(cancelled)
            return True
        try:
            value = work()
            answer.set_result(await value if inspect.isawaitable(value) else value)
        except BaseException as error:
            answer.set_exception(error)
            if self._dismissed or isinstance(error, GeneratorExit):
                raise
        return True

    async def _next_call(self):
        while True:
            try:
                return await self._calls.get()
            except asyncio.CancelledError as error:
                if self._dismissed:
                    raise
                self._cancelled = error

    def dismiss(self):
        """It ends after the call that it is at, or when it is cancelled."""
        self._dismissed = True
        self._calls.put_nowait(None)


class _FrontOfClass:
    """Makes objects on the loop, and knows them again."""

    def __init__(self, world, real):
        self._world = world
        self._real = real

    def __call__(self, *arguments, **options):
        return self._world.do(self._real, *arguments, **options)

    def __getattr__(self, name):
        return functools.partial(self._world.do, getattr(self._real, name))

    def __instancecheck__(self, instance):
        return isinstance(self._world.real(instance), self._real)


class _Front:
    """Stands for an object of the loop: everything that is done with it, its deputy does there."""

    __slots__ = ("__weakref__", "_real", "_world")

    def __init__(self, world, real):
        self._world = world
        self._real = real

    def __getattr__(self, name):
        if inspect.isroutine(getattr(type(self._real), name, None)):
            return functools.partial(self._world.do, getattr(self._real, name))
        return self._world.do(getattr, self._real, name)

    def __repr__(self):
        shown: str = self._world.do(repr, self._real)
        return shown

    def __iter__(self):
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield self._world.do(self._real.__anext__)

    def __enter__(self):
        return self._world.do(self._real.__aenter__)

    def __exit__(self, kind, error, trace):
        late: BaseException | None = None
        try:
            self._world.do(asyncio.sleep, 0)
        except asyncio.CancelledError as cancelled:  # at the last await of the body, so to speak
            if error is None:
                kind, error, late = type(cancelled), cancelled, cancelled
        swallowed = self._world.do(self._real.__aexit__, kind, error, trace)
        if late is not None and not swallowed:
            raise late
        return swallowed
