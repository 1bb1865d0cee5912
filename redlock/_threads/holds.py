"""What threads hold.

All tasks of an event loop run in one thread.  If one task holds a `MultiLock`, or the thread took it outside of all
tasks, another task of that loop does not re-enter it but gets `WouldDeadlock`.  Else both would be in the section.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from redlock._base.holds import Hold
from redlock._threads.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable


class ThreadHold(Hold[Lease]):
    """A hold that a thread entered."""

    def tell_lost(self, on_lost: Callable[[Lease], object] | None) -> None:
        with contextlib.ExitStack() as all_of_them:  # calls the others also if one raises
            for told in self._to_be_told(on_lost):
                all_of_them.callback(told, self.lease)
