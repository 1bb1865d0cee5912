"""Tests that are coroutine functions, for what only tasks meet."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def on_a_loop(play: Callable[[Any, Any], Any]) -> Callable[[Any], Callable[..., None]]:
    """A decorator for a scene, which ``play(scene, servers)`` runs.

    Positional arguments of the scene come from ``play``, those behind a ``*`` from pytest.
    """

    def decorate(scene: Any) -> Callable[..., None]:
        wanted = {p.name: p for p in inspect.signature(scene).parameters.values() if p.kind is p.KEYWORD_ONLY}

        def test(redlock_servers: Any, **given: Any) -> None:
            if "redlock_servers" in wanted:
                given["redlock_servers"] = redlock_servers
            play(functools.partial(scene, **given), redlock_servers)

        functools.update_wrapper(test, scene)
        del test.__wrapped__  # type: ignore[attr-defined]  # pytest would read its arguments there
        servers = inspect.Parameter("redlock_servers", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        others = (p.replace(kind=servers.kind) for name, p in wanted.items() if name != servers.name)
        test.__signature__ = inspect.Signature([servers, *others])  # type: ignore[attr-defined]
        return test

    return decorate
