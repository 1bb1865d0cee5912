"""What one thread does: bytecodes, calls of the kernel, and the functions of the library that it enters."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from benchmarks.scripted import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

Place: TypeAlias = tuple[str, int]  # a file and the first line of a function: code is equal to the same code elsewhere

HOUSE: Final = Path(__file__).parent.parent / "redlock"

_HERE = str(Path(__file__).parent)
_WAITERS = tuple(type(made()) for made in (select.poll, getattr(select, "epoll", select.poll)))
_MOVES = {"send", "sendmsg", "sendall", "recv", "recv_into", "poll"}
_WAKES = [getattr(os, name, os.read) for name in ("read", "write", "eventfd_read", "eventfd_write")]


class Counter:
    """Counts in all files but those of this folder; the bare loops, in a folder below, are counted."""

    def __init__(self) -> None:
        self.bytecodes = 0
        self.calls = 0
        self.python = 0  # calls of Python code, each time that a generator goes on included
        self.entered: dict[Place, Place | None] = {}  # functions of the library in this order, and who calls them first

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.getprofile(), sys.gettrace()
        sys.setprofile(self._called)
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before[1])
            sys.setprofile(before[0])

    def figures(self) -> tuple[int, int, int]:
        return self.bytecodes, self.calls, self.python

    def _entered(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        del event, arg
        code = frame.f_code
        if _folder(code.co_filename) == _HERE:
            return None
        if _in_house(code) and _place(code) not in self.entered:
            caller = frame.f_back
            while caller is not None and not _in_house(caller.f_code):
                caller = caller.f_back
            self.entered[_place(code)] = _place(caller.f_code) if caller else None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._executed

    def _executed(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        del frame, arg
        self.bytecodes += event == "opcode"
        return self._executed

    def _called(self, frame: FrameType, event: str, arg: Any) -> None:
        self.python += event == "call" and _folder(frame.f_code.co_filename) != _HERE
        if event == "c_call":
            moves = arg.__name__ in _MOVES and isinstance(arg.__self__, (Wire, *_WAITERS))
            self.calls += moves or arg in _WAKES

    def walk(self) -> dict[str, int]:
        """How many functions, in how many files, and how often somebody who reads them changes the folder."""
        changes, before = 0, None
        for place, caller in self.entered.items():
            folders = [_folder(path) for path, _ in filter(None, (before, caller or place, place))]
            changes += sum(here != there for here, there in itertools.pairwise(folders))
            before = place
        return {"functions": len(self.entered), "files": len({path for path, _ in self.entered}), "changes": changes}


def _in_house(code: CodeType) -> bool:
    named = code.co_name[0] != "<" or code.co_name == "<lambda>"
    return named and code.co_filename.startswith(f"{HOUSE}{os.sep}")


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_firstlineno


def _folder(path: str) -> str:
    return path.rpartition(os.sep)[0]
