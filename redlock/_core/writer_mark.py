"""A writer that waits keeps new readers away, or it might wait for ever (R33).

After an attempt that readers refused it leaves a mark on all masters, except where another writer has the name.  They
refuse new readers from then on; those that are there may extend.  So the writer gets in when they have released or
expired.

- It leaves the mark anew after each attempt, whatever that failed by, and takes it back at the end.
- A master without readers is marked as well.  An attempt that takes the name there ends the mark, and its rollback
  would let new readers in.  They could get a majority, one master after the other.
- A mark lasts for two pauses of its writer.  A pause may be shorter than an attempt takes; then a mark lasts for two
  times `node_timeout`, or it would be gone before the next one comes.
- The mark of a writer that crashed goes by itself.

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
    """Leave the mark, if it was readers that refused a writer, and from then on after each attempt that failed.

    ``marks`` gets what takes it back.
    """
    if spec.mode.shared or not (by_readers or marks):
        return
    token = marks[0].call.args[0] if marks else settings.token()
    marks[:] = [Send(wire.mark(spec.keys, token, 0.0))]
    yield Send(wire.mark(spec.keys, token, _PAUSES * max(pause, settings.node_timeout)))
