"""asyncio's event loop on the descriptors and the time of a process."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.machine import Process


class Loop(asyncio.BaseEventLoop):
    """One loop, which a thread of ``process`` runs."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._selector: Any = self
        self._woken = False
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self.complaints: list[dict[str, Any]] = []
        self.set_exception_handler(self._complain)

    def _complain(self, _: object, context: dict[str, Any]) -> None:
        self._process.world.log("complaint", self._process, context.get("message"), repr(context.get("exception")))
        self.complaints.append(context)

    def time(self) -> float:
        return self._process.clock()

    # -- as a selector -------------------------------------------------------------------------------

    def select(self, timeout: float | None) -> list[asyncio.Handle]:
        def ready() -> list[asyncio.Handle] | bool:
            descriptors = self._process.descriptors
            found = [handle for fd, handle in self._readers.items() if fd in descriptors and descriptors[fd].readable()]
            found += [
                handle for fd, handle in self._writers.items() if fd in descriptors and descriptors[fd].writable()
            ]
            return found or self._woken

        # It counts whole milliseconds, and rounds them up.
        seconds = None if timeout is None else math.ceil(timeout * 1000) / 1000
        found = self._process.wait_for(ready, seconds)
        self._woken = False
        return found if isinstance(found, list) else []

    def close(self) -> None:
        super().close()
        self._readers.clear()
        self._writers.clear()

    def _process_events(self, event_list: Any) -> None:
        for handle in event_list:
            if not handle.cancelled():
                self._ready.append(handle)  # type: ignore[attr-defined]

    def _write_to_self(self) -> None:
        self._woken = True
        self._process.changed()

    # -- descriptors ---------------------------------------------------------------------------------

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        return _drop(self._readers, fd)

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self._writers[fd] = asyncio.Handle(callback, args, self)

    def remove_writer(self, fd: Any) -> bool:
        return _drop(self._writers, fd)


def _drop(handles: dict[int, asyncio.Handle], fd: int) -> bool:
    handle = handles.pop(fd, None)
    if handle is not None:
        handle.cancel()
    return handle is not None
