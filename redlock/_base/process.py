"""Tells which process this is: a forked child must not take its parent's locks for its own, nor sign with its name.

`os.getpid` would tell, too, but each call is a system call, and one acquire and release would make about ten.
Instead Python runs a hook in each forked child.  A fork that Python does not know of has no such hook; it breaks the
locks and threads of Python itself as well.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from redlock.options import LONGEST_OWNER

if TYPE_CHECKING:
    from collections.abc import Callable

mark: object = object()  # every child gets a new one


def is_this(other: object) -> bool:
    """Whether the noted `mark` is that of this process."""
    return other is mark


here: Callable[[], bool] = partial(is_this, mark)  # true in this process, false in its forked children


def name() -> str:
    """This process for people, ``host/pid``: the owner of its locks unless they are given one (R27)."""
    pid = f"/{os.getpid()}"
    host = "".join(character if character.isprintable() else "?" for character in os.uname().nodename)
    return host.encode()[: LONGEST_OWNER - len(pid)].decode(errors="ignore") + pid


signature: str = ":" + name()  # behind the digits of a token


def _in_child() -> None:
    global mark, here, signature  # noqa: PLW0603 - the purpose of this module
    mark = object()
    here = partial(is_this, mark)
    signature = ":" + name()


os.register_at_fork(after_in_child=_in_child)
