"""Which process this is.  A fork in C runs no hook of Python; `tests/servers/test_forks.py` has programs that fork so."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from redlock._io import process
from tests.servers.interrupt import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

FORKS = """
import ctypes, os
from redlock._io import process
if asks:
    process.usual = process._Asked()
here, pid = process.here, process.pid
child = ctypes.PyDLL(None).fork()
if child:
    os.waitpid(child, 0)
print(bool(process.usual[0]), here(), process.here(), bool(process.usual[0]), process.pid == pid, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a forked child is wiped on Linux only")
@pytest.mark.parametrize("asks", [False, True])
def test_a_child_that_was_forked_in_c_notices_that(asks: bool) -> None:
    done = subprocess.run([sys.executable, "-c", f"asks = {asks}{FORKS}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False False True True False", "True True True True True"]


def no_page(*_: object, **__: object) -> Mock:
    raise OSError(errno.ENOMEM, "no memory")


def knows(*advice: int) -> Callable[..., Mock]:
    def advise(given: int) -> None:
        if given not in advice:
            raise OSError(errno.EINVAL, "no such advice")

    return lambda *_, **__: Mock(madvise=advise)


@pytest.mark.parametrize(("platform", "memory"), [
    ("darwin", knows(18)),  # where that number may mean something else
    ("linux", no_page),
    ("linux", knows()),  # a kernel before 4.14
    ("linux", knows(18, 0x7FFF)),  # it takes any advice, and may follow none
])  # fmt: skip
def test_the_kernel_is_asked_where_no_page_is_wiped(
    platform: str, memory: Callable[..., Mock], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(mmap, "mmap", memory)
    usual = process._page()
    assert type(usual) is process._Asked
    assert usual[0]
    monkeypatch.setattr(process, "getpid", lambda: process.pid + 1)
    assert not usual[0]


def test_from_the_end_of_atexit_on_each_look_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python stops its other threads then, which may have left a lock closed."""
    survivor = Mock()
    monkeypatch.setattr(process, "usual", [1])
    monkeypatch.setattr(process, "survivors", {survivor})
    monkeypatch.setattr(process, "_ends", False)
    process._end()
    process.check()
    assert not survivor.stay_alone.called
    monkeypatch.setattr(process, "is_finalizing", lambda: True)
    process.check()
    assert survivor.stay_alone.called
    assert not process.usual[0]


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What a forked child calls when it notices that it is one: we are one that has not."""
    hooks: list[Callable[[], object]] = []
    state: dict[str, Any] = {"pid": -1, "identity": None, "here": None, "usual": [0], "survivors": (), "tokens": Mock()}
    for name, value in {**state, "_noticing": {}, "_hooks": hooks}.items():
        monkeypatch.setattr(process, name, value)
    return hooks


def test_a_child_notices_once_more_after_a_ctrl_c_behind_which_another_one_strikes(
    hooks: list[Callable[[], object]],
) -> None:
    """R11, seed 10013994.  The second one comes while the first one is on its way out of `notice`."""
    traced, interrupt, called = sys.gettrace(), Interrupt(1), []

    def hook() -> None:
        called.append(hook)
        if len(called) == 1:
            sys.settrace(interrupt)
            sys._getframe(1).f_trace = interrupt
            raise KeyboardInterrupt

    hooks.append(hook)
    with pytest.raises(KeyboardInterrupt):
        process.check()
    sys.settrace(traced)
    process.check()
    assert (called, process.pid, process.usual[0]) == ([hook, hook], os.getpid(), True)


def test_a_finalizer_that_notices_in_the_middle_of_that_changes_nothing(hooks: list[Callable[[], object]]) -> None:
    hooks.append(process.notice)
    assert process.notice()
    assert process.pid == os.getpid()
