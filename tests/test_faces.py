"""The public classes for threads are made from those for asyncio."""

from __future__ import annotations

import textwrap

from tools import unasync


def made(text: str) -> str:
    return unasync.made_from(textwrap.dedent(text))


def test_what_is_awaited_is_called() -> None:
    text = """
        async def extend(self, ttl: float | None = None) -> AsyncLease:  # noqa: ASYNC109 - as for threads
            '''This task must hold it; see ``async with`` and `AsyncLease`, an ``async for``.'''
            return (await self._run(ttl)).lease
    """
    assert made(text) == textwrap.dedent("""
        def extend(self, ttl: float | None = None) -> Lease:
            '''This thread must hold it; see ``with`` and `Lease`, a ``for``.'''
            return (self._run(ttl)).lease
    """)


def test_what_the_two_do_not_share_is_marked() -> None:
    text = """
        check_awaited(function)  # > check_called(function)
        cancel_on_loss: bool  # asyncio only
        # asyncio only
        await cancel()
        # threads instead
        # > for one in these:
        # >     tell("await", one)
        # >
        # both again
        await last()
    """
    assert made(text) == textwrap.dedent("""
        check_called(function)
        for one in these:
            tell("await", one)

        last()
    """)


def test_a_decorated_coroutine_function_becomes_a_function() -> None:
    text = "Callable[[Callable[P, Coroutine[Any, Any, R | None]]], Callable[P, Coroutine[Any, Any, list[R]]]]"
    assert made(text) == "Callable[[Callable[P, R | None]], Callable[P, list[R]]]\n"


def test_the_files_are_what_their_text_makes() -> None:
    """`make lint` asks the same; whoever runs the tests alone hears of it as well."""
    assert unasync.stale() == []
