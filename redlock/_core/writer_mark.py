"""A writer that waits keeps new readers away, or it might wait for ever (R33).

It leaves a mark on all masters, except where another writer has the name.  They refuse new readers from then on; those
that are there may extend.  A master without readers is marked as well: the writer may have just given back what it had
got there, and readers that come in on one master after another get a majority in the end.
So the writer gets in when they have released or expired.  A mark lasts for two pauses of its writer, which leaves it
anew after each attempt, and takes it back at the end.  A pause may be shorter than an attempt takes; then a mark lasts
for two times `node_timeout`, or it would be gone before the next one comes.  The mark of a writer that crashed goes by
itself.

It serves liveness alone: a mark that is lost costs time, and nobody's lock rests on it.  So no votes are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock._core import wire
from redlock._core.effects import Send

if TYPE_CHECKING:
    from redlock._core.effects import Op
    from redlock._core.settings import LockSpec, MastersSettings

_PAUSES = 2


def keep_new_readers_away(
    settings: MastersSettings, spec: LockSpec, marks: list[Send], *, by_readers: bool, pause: float
) -> Op[None]:
    """Leave the mark, if it was readers that refused a writer.  ``marks`` gets what takes it back."""
    if not by_readers or spec.mode.shared:
        return
    token = marks[0].call.args[0] if marks else settings.token()
    marks[:] = [Send(wire.mark(spec.keys, token, 0.0))]
    yield Send(wire.mark(spec.keys, token, _PAUSES * max(pause, settings.node_timeout)))
