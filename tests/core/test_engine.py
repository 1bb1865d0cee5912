"""The engine: what an operation ends with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from redlock._core.effects import Leave, Wait
from redlock._core.kernel.rollback import despite_interrupts
from redlock._core.local_queue import Place
from redlock._core.operation import OperationBase
from redlock._io.runtime import without_masters
from redlock.errors import RedlockError

if TYPE_CHECKING:
    from redlock._core.effects import Effect, Op


class Closed(OperationBase[None, Any]):
    """Its masters are closed while it waits."""

    def send(self, request: Any) -> None:
        raise AssertionError

    def wake(self) -> None:
        raise AssertionError

    def _await(self, *_: Any, **__: Any) -> Any:
        raise RedlockError("closed")


def waits() -> Op[None]:
    try:
        yield Wait(1.0)
    except BaseException:
        yield from despite_interrupts(Leave(Place(("a",))))
        raise


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_ctrl_c_in_the_cleanup_after_an_error_is_not_lost(times: int) -> None:
    """R11: the program has to know, and not only that somebody has closed its masters."""
    struck = [KeyboardInterrupt(number) for number in range(times)]
    errors = struck[:]

    def perform(effect: Effect, _: Any) -> None:
        assert isinstance(effect, Leave)
        if errors:
            raise errors.pop(0)

    host = SimpleNamespace(operations=set(), perform_local=perform)
    operation = Closed(waits(), host)
    with pytest.raises((KeyboardInterrupt, RedlockError)) as raised:
        operation.start()
    assert raised.value is struck[0] if struck else isinstance(raised.value, RedlockError)
    assert not host.operations
    assert not errors


def test_nor_is_one_where_the_masters_are_closed_already() -> None:
    def struck() -> Op[None]:
        try:
            raise KeyboardInterrupt  # noqa: TRY301 - a signal handler would
        except BaseException:
            yield from despite_interrupts(Leave(Place(("a",))))
            raise

    with pytest.raises(KeyboardInterrupt):
        without_masters(struck())
    with pytest.raises(RedlockError, match="closed"):
        without_masters(waits())
