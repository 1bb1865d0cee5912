"""What programs that the tests start inherit from this process, and which test begins first."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

# A run in the background (`nohup make test &`) ignores these, and so would all that it starts.
for _name, _handler in (
    ("SIGINT", signal.default_int_handler),
    ("SIGQUIT", signal.SIG_DFL),
    ("SIGHUP", signal.SIG_DFL),
):
    _number = getattr(signal, _name, None)  # Windows has only the first one
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first: else all processes but one would wait for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)
