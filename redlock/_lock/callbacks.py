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

    ``name``: of the option that it is, for the log if the task fails.
    """
    told = function(argument)
    if inspect.iscoroutine(told):
        telling = asyncio.get_running_loop().create_task(told)
        _TELLING.add(telling)  # the loop holds its tasks only by weak references
        telling.add_done_callback(partial(_has_told, name))


def _has_told(name: str, telling: asyncio.Task[Any]) -> None:
    _TELLING.discard(telling)
    if not telling.cancelled() and (error := telling.exception()) is not None:
        report_failure(f"{name} failed", error)


_TELLING: set[asyncio.Task[Any]] = set()
