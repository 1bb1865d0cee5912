"""What the library imports instead of `socket`, `select`, `threading`, `time` and a few more, in one process.

Only what the library calls is here.  Everything else of these modules is the real thing: constants, for one.
"""

from __future__ import annotations

import atexit
import errno
import gc
import math
import mmap
import os
import queue
import random
import secrets
import select
import socket
import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.bench.machine import Descriptor, Killed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.bench.library import Library
    from tests.bench.machine import Machine, Process, Thread

FULL = 65536  # bytes in a pipe


class _Module:
    """A module: what is set here, and the real one behind it."""

    def __init__(self, real: ModuleType, **ours: Any) -> None:
        self._real = real
        self.__name__ = real.__name__
        for name, value in ours.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Page:
    """Memory of a process, of which a forked child finds nothing (`MADV_WIPEONFORK`)."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self[0] = 0

    def madvise(self, advice: int) -> None:
        if advice != 18:
            raise OSError(errno.EINVAL, "no such advice")

    def __setitem__(self, _: int, value: int) -> None:
        self._of, self._value = self._process.pid, value

    def __getitem__(self, _: int) -> int:
        return self._value if self._of == self._process.pid else 0


class System:
    """The operating system as one process sees it."""

    def __init__(self, process: Process, *, epoll: bool = True) -> None:
        self.process = process
        self.machine: Machine = process.machine
        chance = process.chance
        modules: dict[str, Any] = {
            "threading": _Module(
                threading, Lock=self._bound(Lock), RLock=self._bound(RLock), Event=self._bound(Event),
                Thread=type("Thread", (ThreadObject,), {"_system": self}), local=_local(self),
                current_thread=self.current_thread, main_thread=self.main_thread, get_ident=self.get_ident,
            ),
            "time": _Module(
                time, sleep=self.sleep, clock_gettime=lambda _: process.clock(), monotonic=process.clock,
                time=process.wall, time_ns=lambda: int(process.wall() * 1e9),
            ),
            "os": _Module(
                os, pipe=self.pipe, read=self.read, write=self.write, close=process.close, set_blocking=lambda *_: None,
                getpid=lambda: process.pid, uname=lambda: SimpleNamespace(nodename=process.name), urandom=chance.randbytes, register_at_fork=self._register_at_fork,
            ),
            "mmap": _Module(mmap, mmap=lambda *_, **__: Page(process)),
            "select": _Module(select, poll=self._bound(Poll), epoll=self._bound(Epoll)),
            "socket": _Module(socket, socket=None),
            "queue": _Module(queue, SimpleQueue=self._bound(SimpleQueue)),
            "random": _Module(random, SystemRandom=lambda: chance),
            "secrets": _Module(secrets, token_hex=lambda size=20: chance.randbytes(size).hex()),
            "gc": _Module(gc, callbacks=[]),  # each copy has its own
            "atexit": _Module(atexit, register=process.at_exit.append),
        }  # fmt: skip
        if not epoll:
            modules["select"] = _WithoutEpoll(select, poll=self._bound(Poll))
        self.modules = modules
        self.connector: Callable[[ModuleType], Any] | None = None
        self.objects: dict[Thread, ThreadObject] = {}

    def loaded(self, library: Library, name: str, module: ModuleType) -> None:
        """A module of the library was just loaded, and nobody has imported anything from it yet."""
        if name == "redlock._connect" and self.connector is not None:
            vars(module)["Connector"] = self.connector(module)

    def _bound(self, kind: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: kind(self, *args)

    def _register_at_fork(self, *, after_in_child: Callable[[], object]) -> None:
        self.process.at_fork.append(after_in_child)

    # -- threads -------------------------------------------------------------------------------------

    def current_thread(self) -> ThreadObject:
        thread = self.machine.current
        assert thread is not None
        return self._object(thread)

    def main_thread(self) -> ThreadObject:
        return self._object(self.process.main)

    def _object(self, thread: Thread) -> ThreadObject:
        found = self.objects.get(thread)
        if found is None:  # not made by `threading.Thread`
            found = ThreadObject.__new__(self.modules["threading"].Thread)
            found._thread = thread
            self.objects[thread] = found
        return found

    def get_ident(self) -> int:
        thread = self.machine.current
        return 0 if thread is None else thread.number

    def sleep(self, seconds: float) -> None:
        self.process.called()
        until = self.process.in_(seconds)
        assert until is not None
        while self.process.world.now < until:
            self.machine.wait(until)

    # -- files ---------------------------------------------------------------------------------------

    def pipe(self) -> tuple[int, int]:
        self.process.called()
        read = ReadEnd(self.process)
        return read.fd, WriteEnd(self.process, read).fd

    def read(self, fd: int, most: int) -> bytes:
        end = self.process.find(fd)
        assert isinstance(end, ReadEnd)
        if not end.filled:
            raise BlockingIOError(errno.EAGAIN, "nothing is there")
        got = min(most, end.filled)
        end.filled -= got
        return bytes(got)

    def write(self, fd: int, data: bytes) -> int:
        end = self.process.find(fd)
        assert isinstance(end, WriteEnd)
        if end.into.fd < 0:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        if end.into.filled >= FULL:
            raise BlockingIOError(errno.EAGAIN, "the pipe is full")
        end.into.filled += len(data)
        self.process.changed()
        return len(data)


class _WithoutEpoll(_Module):
    def __getattr__(self, name: str) -> Any:
        if name == "epoll" or name.startswith("EPOLL"):
            raise AttributeError(name)
        return super().__getattr__(name)


class ReadEnd(Descriptor):
    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.filled = 0

    def readable(self) -> bool:
        return self.filled > 0

    def shut(self) -> None:
        self.fd = -1


class WriteEnd(Descriptor):
    def __init__(self, process: Process, into: ReadEnd) -> None:
        super().__init__(process)
        self.into = into


# -- locks -------------------------------------------------------------------------------------------


class Lock:
    """`threading.Lock`.  Whoever comes when it is let go may be faster than who was woken."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._held = False
        self._waiting: deque[Thread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        process, machine = self._system.process, self._system.machine
        if process.dead:
            raise Killed
        if not self._held:
            self._held = True
            return True
        if not blocking or timeout == 0:
            return False
        until = None if timeout < 0 else process.in_(timeout)
        thread = machine._caller()
        self._waiting.append(thread)
        try:
            while self._held:
                if not machine.wait(until) and self._held:
                    return False
            self._held = True
        except BaseException:
            if not self._held:
                self._wake(but=thread)
            raise
        finally:
            self._waiting.remove(thread)
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        self._wake()

    def _wake(self, but: Thread | None = None) -> None:
        for thread in self._waiting:
            if thread is not but and not thread.woken:
                self._system.machine.wake(thread)
                return

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        if not self._system.process.dead or self._held:
            self.release()


class RLock(Lock):
    def __init__(self, system: System) -> None:
        super().__init__(system)
        self._owner: Thread | None = None
        self._times = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        current = self._system.machine.current
        if self._times and self._owner is current:
            self._times += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._owner, self._times = current, 1
        return True

    def release(self) -> None:
        self._times -= 1
        if not self._times:
            self._owner = None
            super().release()

    def _is_owned(self) -> bool:
        return self._times > 0 and self._owner is self._system.machine.current


class Event:
    def __init__(self, system: System) -> None:
        self._system = system
        self._set = False
        self._waiting: list[Thread] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for thread in self._waiting:
            self._system.machine.wake(thread)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        machine, until = self._system.machine, self._system.process.in_(timeout)
        thread = machine._caller()
        self._waiting.append(thread)
        try:
            while not self._set and machine.wait(until):
                pass
        finally:
            self._waiting.remove(thread)
        return self._set


class SimpleQueue:
    def __init__(self, system: System) -> None:
        self._items: deque[Any] = deque()
        self._event = Event(system)
        self._process = system.process

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._event.set()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        until = self._process.in_(timeout)
        while not self._items:
            left = None if until is None else (until - self._process.world.now)
            self._event.clear()
            if not block or (left is not None and left <= 0):
                raise queue.Empty
            self._event.wait(left)
        return self._items.popleft()


class ThreadObject:
    """`threading.Thread`."""

    _system: System
    _thread: Thread | None = None

    def __init__(
        self, target: Callable[..., object], args: tuple[Any, ...] = (), name: str = "thread", daemon: bool = False
    ) -> None:
        self._call, self.name, self.daemon = lambda: target(*args), name, daemon

    def start(self) -> None:
        process = self._system.process
        process.called()
        self._thread = process.spawn(self._call, self.name)
        self._system.objects[self._thread] = self
        process.step()

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.over

    def join(self, timeout: float | None = None) -> None:
        assert self._thread is not None
        machine, until = self._system.machine, self._system.process.in_(timeout)
        while not self._thread.over:
            self._thread.joining.append(machine._caller())
            if not machine.wait(until):
                return


def _local(system: System) -> type[Any]:
    """`threading.local`, as a base class."""
    own = object.__getattribute__
    nowhere: dict[int, dict[str, Any]] = {}  # of whoever looks from outside of all threads

    def enter(self: Any) -> None:
        thread = system.machine.current
        if thread is None:
            found, new = nowhere.setdefault(id(self), {}), id(self) not in nowhere
        else:
            new = self not in thread.locals
            found = thread.locals.setdefault(self, {})
        object.__setattr__(self, "__dict__", found)
        if new:
            type(self).__init__(self)

    class Local:
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("__"):
                enter(self)
            return own(self, name)

        def __setattr__(self, name: str, value: Any) -> None:
            enter(self)
            object.__setattr__(self, name, value)

    return Local


# -- poll --------------------------------------------------------------------------------------------


class Poll:
    """`select.poll`.  What is registered while a thread is inside is seen by the next call."""

    def __init__(self, system: System) -> None:
        self._process = system.process
        self._wanted: dict[int, int] = {}
        self._inside = False

    def register(self, fd: int, mask: int = select.POLLIN | select.POLLOUT) -> None:
        self._wanted[fd] = mask

    def modify(self, fd: int, mask: int) -> None:
        if fd not in self._wanted:
            raise OSError(errno.ENOENT, "No such file or directory")
        self._wanted[fd] = mask

    def unregister(self, fd: int) -> None:
        del self._wanted[fd]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        process = self._process
        process.called()
        if self._inside:
            raise RuntimeError("concurrent poll() invocation")
        watched = [(fd, mask, process.descriptors.get(fd)) for fd, mask in self._wanted.items()]

        def ready() -> list[tuple[int, int]]:
            found = []
            for fd, mask, descriptor in watched:
                events = select.POLLNVAL if descriptor is None else _events(descriptor, mask)
                if events:
                    found.append((fd, events))
            return found

        self._inside = True
        try:
            # It counts whole milliseconds, and Python rounds them up.
            seconds = None if timeout is None or timeout < 0 else math.ceil(timeout) / 1000
            found: list[tuple[int, int]] = process.wait_for(ready, seconds)
            return found
        finally:
            self._inside = False


def _events(descriptor: Descriptor, mask: int) -> int:
    events = mask & select.POLLIN if descriptor.readable() else 0
    if mask & select.POLLOUT and descriptor.writable():
        events |= select.POLLOUT
    if descriptor.hung_up():
        events |= (mask & getattr(select, "POLLRDHUP", 0)) | select.POLLHUP
    return events


class Epoll(Descriptor):
    """`select.epoll`, which forgets a descriptor that is closed."""

    def __init__(self, system: System) -> None:
        super().__init__(system.process)
        self._wanted: dict[int, tuple[int, Descriptor]] = {}

    def fileno(self) -> int:
        return self.fd

    def register(self, fd: int, mask: int) -> None:
        self._wanted[fd] = mask, self.process.find(fd)

    def modify(self, fd: int, mask: int) -> None:
        if fd not in self._wanted:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        self.register(fd, mask)

    def unregister(self, fd: int) -> None:
        if self._wanted.pop(fd, None) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    def _ready(self) -> list[tuple[int, int]]:
        found = []
        for fd, (mask, descriptor) in list(self._wanted.items()):
            if self.process.descriptors.get(fd) is not descriptor:
                del self._wanted[fd]
            elif events := _events(descriptor, mask):  # the numbers of the events are those of poll()
                found.append((fd, events))
        return found

    def poll(self, timeout: float = -1) -> list[tuple[int, int]]:
        self.process.called()
        found: list[tuple[int, int]] = self.process.wait_for(self._ready, None if timeout < 0 else timeout)
        return found

    def readable(self) -> bool:
        return bool(self._ready())

    def close(self) -> None:
        if self.fd in self.process.descriptors:
            self.process.close(self.fd)
