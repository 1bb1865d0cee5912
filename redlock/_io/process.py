"""Tells which process this is: a forked child must not take its parent's locks for its own, nor sign with its name.

Python runs a hook in each child that it forks.  What forks without Python (uWSGI, an embedded interpreter, a library
in C) runs none.  So whoever is about to do something compares `pid` with that of the kernel, and calls `notice` if it
is another one: at the beginning of an operation, at each look at a lease, and before anything is written or read.

Also considered: a page of memory that the kernel wipes in a child (Linux alone); `pthread_atfork` (it calls C, and the
thread that forks may not have the interpreter's lock); the hook alone, as before: parent and child then read each
other's answers.
"""

from __future__ import annotations

import os
from functools import partial
from os import getpid
from threading import RLock
from typing import TYPE_CHECKING

from redlock.options import LONGEST_OWNER

if TYPE_CHECKING:
    from collections.abc import Callable

pid = getpid()  # of the process that all of our state belongs to
mark: object = object()  # every child gets a new one; pids are used again
_hooks: list[Callable[[], None]] = []
_noticing: dict[int, RLock] = {}  # by pid: a thread of the parent may hold that of the parent
_busy = False  # `notice` is under way, and the garbage collector may call it again


def is_this(other: object) -> bool:
    """Whether the noted `mark` is that of this process."""
    if getpid() != pid:
        notice()
    return other is mark


here: Callable[[], bool] = partial(is_this, mark)  # true in this process, false in its forked children


def name() -> str:
    """This process for people, ``host/pid``: the owner of its locks unless they are given one (R27)."""
    pid = f"/{getpid()}"
    node = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    host = "".join(character if character.isprintable() else "?" for character in node)
    return host.encode()[: LONGEST_OWNER - len(pid)].decode(errors="ignore") + pid


signature: str = ":" + name()  # behind the digits of a token


def in_child(hook: Callable[[], None]) -> None:
    """Call ``hook`` in each forked child, before anything else of ours runs there.  Twice does no harm."""
    _hooks.append(hook)


def look() -> None:
    """Notice a fork, unless that was done."""
    if getpid() != pid:
        notice()


def noted() -> Callable[[], bool]:
    """`here`, for what no operation does: that has looked."""
    look()
    return here


def notice() -> None:
    """This is a forked child: it lets go of all that is its parent's.  Takes no lock that a thread there may hold."""
    global pid, mark, here, signature, _busy  # noqa: PLW0603 - the purpose of this module
    with _noticing.setdefault(getpid(), RLock()):
        if _busy or pid == getpid():  # another thread was faster
            return
        _busy = True
        try:
            mark = object()
            here = partial(is_this, mark)
            signature = ":" + name()
            for hook in _hooks:
                hook()
            pid = getpid()  # last: whoever comes meanwhile waits, and after an interruption all is done again
        finally:
            _busy = False


if hasattr(os, "register_at_fork"):  # else nothing forks
    os.register_at_fork(after_in_child=look)
