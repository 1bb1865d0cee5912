"""A writer that waits keeps new readers away, or it might wait for ever (R33).

It leaves a mark on the masters that have readers.  They refuse new ones from then on; those that are there may extend.
So the writer gets in when they have released or expired.  A mark lasts for two pauses of its writer, which leaves it
anew at each attempt, and takes it back at the end.  The mark of a writer that crashed goes by itself.

It serves liveness alone: a mark that is lost costs time, and nobody's lock rests on it.  So no votes are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core import wire
from redlock._core.effects import Send

if TYPE_CHECKING:
    from redlock._core.settings import LockSpec, MastersSettings

_PAUSES = 2


def keep_new_readers_away(
    settings: MastersSettings, spec: LockSpec, marks: list[Send], masters: frozenset[int], pause: float
) -> Send:
    """The request that leaves the mark on ``masters``.  ``marks`` gets the one that takes it back."""
    if marks:
        token, marked = marks[0].call.args[0], marks[0].to or frozenset()
    else:
        token, marked = settings.token(), frozenset()
    marks[:] = [Send(wire.mark(spec.keys, token, 0.0), to=marked | masters)]
    return Send(wire.mark(spec.keys, token, _PAUSES * pause), to=masters)
