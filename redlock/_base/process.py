"""Which process this is: a forked child must not take for its own what its parent holds.

`os.getpid` would tell, with a system call at every look, some ten of them for one lock that is taken and
given back.  Python runs a hook in each child instead; a fork that it does not know of leaves its own
locks and threads broken as well.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

mark: object = object()  # another one in every child


def is_this(other: object) -> bool:
    """Whether the `mark` that was noted is that of this process."""
    return other is mark


here: Callable[[], bool] = partial(is_this, mark)  # true here, and false in every child of ours


def _in_child() -> None:
    global mark, here  # noqa: PLW0603 - that is what this module is
    mark = object()
    here = partial(is_this, mark)


os.register_at_fork(after_in_child=_in_child)
