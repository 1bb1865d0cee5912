"""Calls users' functions from a callback of the loop.  They may be coroutine functions."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from redlock._io.report import report_failure

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def call(function: Callable[[T], object], argument: T, name: str) -> None:
    """Call ``function``, on the running loop.  If it is a coroutine function a task of its own runs it, to its end.

    ``name``: of the option, for the log if the task fails.
    """
    result = function(argument)
    if inspect.iscoroutine(result):
        task = asyncio.get_running_loop().create_task(result)
        _TASKS.add(task)  # the loop holds its tasks only by weak references
        task.add_done_callback(partial(_report_failed, name))


def _report_failed(name: str, task: asyncio.Task[Any]) -> None:
    _TASKS.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        report_failure(f"{name} failed", error)


_TASKS: set[asyncio.Task[Any]] = set()
