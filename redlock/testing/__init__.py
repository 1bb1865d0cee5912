"""Real servers for tests, demos and experiments. They vanish without a trace when the test ends.

`LocalMasters` starts them, kills them, pauses them and moves their clocks.  The pytest fixtures
``redlock_servers`` and ``redlock_masters`` need no import: pytest finds the plugin by itself.

`FixedMasters` need no server, and are no locks: they give one answer to every program (``redlock_refused``, ...).
"""

from redlock._local.programs import ServerNotFound, find_server
from redlock.testing._clock import ClockUnavailable
from redlock.testing.fixed import FixedMasters
from redlock.testing.local import LocalMasters
from redlock.testing.servers import ServerFailed, clock_available

__all__ = [
    "ClockUnavailable",
    "FixedMasters",
    "LocalMasters",
    "ServerFailed",
    "ServerNotFound",
    "clock_available",
    "find_server",
]
