"""Where masters and clients live, and how the links between them are cut.

One module a backend: NAME, WHAT, LACKS, REMARK, `unavailable()`, `command()`, `check()`, `rig()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from . import compose, namespace, proxy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..settings import Settings
    from .rig import Rig


class Backend(Protocol):
    @property
    def NAME(self) -> str: ...  # noqa: N802 - a constant of a module

    @property
    def WHAT(self) -> str: ...  # noqa: N802

    @property
    def LACKS(self) -> Mapping[str, str]: ...  # noqa: N802

    @property
    def REMARK(self) -> str: ...  # noqa: N802

    def unavailable(self) -> str | None: ...

    def command(self, session: Sequence[str]) -> list[str]: ...

    def check(self, settings: Settings) -> None: ...

    def rig(self, settings: Settings) -> Rig: ...


# In the order in which they are preferred.
BACKENDS: Final[dict[str, Backend]] = {backend.NAME: backend for backend in (namespace, proxy, compose)}


class Unavailable(RuntimeError):  # noqa: N818 - named for what is the case
    """The backend that was asked for does not work here.  The text says why and what does."""


def choose(name: str = "auto") -> Backend:
    """The backend ``name``, or with ``auto`` the first one that works here."""
    if name != "auto":
        why = BACKENDS[name].unavailable()
        if why is not None:
            raise Unavailable(f"backend {name}: {why}; --backend auto takes what works here")
        return BACKENDS[name]
    return next(backend for backend in BACKENDS.values() if backend.unavailable() is None)
