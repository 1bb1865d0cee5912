"""Finds out which process this is: a forked child must not take its parent's locks for its own, nor use its name.

Python runs a hook in each child that it forks.  A fork without Python (uWSGI, an embedded interpreter, a library in
C) runs none.  So `usual` says whether all is as it was, and `notice` is called if not: when an operation begins,
whenever a lease is asked for its state, and before anything is written or read.  Linux (from 4.14 on) wipes `usual` in
each child (`MADV_WIPEONFORK`): to read it takes a tenth of the time of a call of getpid(), which all others need.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import sys
import weakref
from functools import partial
from os import getpid
from sys import is_finalizing
from threading import RLock
from typing import TYPE_CHECKING, Any

from redlock._core.tokens import TokenSource
from redlock.options import LONGEST_OWNER

if TYPE_CHECKING:
    from collections.abc import Callable

_WIPE_ON_FORK = 18  # madvise(2); Python has no name for it
_NO_ADVICE = 0x7FFF  # a kernel, or what stands for one, that takes this does as it likes with any advice

pid = getpid()  # the process that all of our state belongs to
identity: object = object()  # every child gets a new one; pids are used again
_hooks: list[Callable[[], None]] = []
_noticing: dict[int, OwnLock] = {}  # by pid: a thread of the parent may hold the parent's lock
# Their `stay_alone` is called in the last thread of a process: others may hold a lock, and never release it.
survivors: weakref.WeakSet[Any] = weakref.WeakSet()


class _Asked:
    """`usual` where no page is wiped: it asks the kernel each time."""

    def __getitem__(self, _: int) -> int:
        return getpid() == pid and not is_finalizing()

    def __setitem__(self, _: int, usual: int) -> None:
        pass


def _page() -> Any:
    """One byte, which the kernel sets to 0 in each forked child, also in one that C code has forked."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            page.madvise(_WIPE_ON_FORK)
            try:
                page.madvise(_NO_ADVICE)
            except OSError:
                page[0] = 1
                return page
    return _Asked()


usual = _page()  # [0]: true, but in a forked child, and when Python is about to stop its threads
_ends = False


class OwnLock:
    """A lock that knows whether the calling thread has it: a finalizer or a signal handler may come back in the middle.

    ``with`` takes its ``lock``, not the object itself: a Ctrl-C in an `__enter__` in Python would leave it locked.
    """

    def __init__(self) -> None:
        self.lock: Any = RLock()

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it already: it was interrupted there, and must not wait for itself."""
        return bool(self.lock._is_owned())  # noqa: SLF001 - `threading.Condition` asks it, too


class ForkLock(OwnLock):
    """A lock that is always open in a forked child, and when Python has stopped all threads but one.

    Use it only for state that is right whatever the other threads were doing.
    """

    def __init__(self) -> None:
        self.stay_alone()
        survivors.add(self)

    def stay_alone(self) -> None:
        self.lock = RLock()


brief = ForkLock()  # guards the local queues, and extensions of leases: taken last, held for microseconds


def is_this(other: object) -> bool:
    if not usual[0]:
        notice()
    return other is identity


here: Callable[[], bool] = partial(is_this, identity)  # true in this process, false in its forked children


def name() -> str:
    """This process for people, ``host/pid``: the owner of its locks unless they are given one (R27)."""
    pid = f"/{getpid()}"
    node = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    host = "".join(character if character.isprintable() else "?" for character in node)
    return host.encode()[: LONGEST_OWNER - len(pid)].decode(errors="ignore") + pid


tokens = TokenSource(os.urandom, name())  # a forked child signs them with its own name


def in_child(hook: Callable[[], None]) -> None:
    """Call ``hook`` in each forked child, before anything else of ours runs there.  Twice does no harm."""
    _hooks.append(hook)


def check() -> None:
    """Notice that no other thread runs any more, unless that was done."""
    if not usual[0]:
        notice()


def noted() -> Callable[[], bool]:
    """`here`, where no operation has checked for a fork before."""
    check()
    return here


def notice() -> bool:
    """This is a forked child: let go of all that is the parent's. Takes no lock that a thread of the parent may hold.

    Or Python is finalizing, after the last callback of atexit: it has stopped all other threads, and calls `__del__`.
    True: it was a fork.
    """
    global pid, identity, here  # noqa: PLW0603 - the purpose of this module
    if is_finalizing():
        for survivor in list(survivors):
            survivor.stay_alone()
        survivors.clear()
    forked = pid != getpid()
    if forked:
        noticing = _noticing.setdefault(getpid(), OwnLock())
        if noticing.is_mine:  # the garbage collector calls it again
            return True
        with noticing.lock:
            if pid == getpid():  # another thread was faster
                return True
            for survivor in list(survivors):
                survivor.stay_alone()
            identity = object()
            here = partial(is_this, identity)
            tokens.sign(name())
            for hook in _hooks:
                hook()
            pid = getpid()  # last: other threads wait for it, and after an interruption all is done again
    usual[0] = True
    if _ends:  # perhaps only now
        usual[0] = False
    return forked


def _end() -> None:
    """The last callback of atexit begins: from now on `notice` looks each time."""
    global _ends  # noqa: PLW0603 - as above
    _ends = True
    usual[0] = False


atexit.register(_end)


if hasattr(os, "register_at_fork"):  # else nothing forks
    os.register_at_fork(after_in_child=check)
