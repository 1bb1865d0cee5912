"""Somebody who waits for a lock in a thread, and how far the subscriptions are."""

import threading
from typing import Any

from tenacity import wait_fixed

NEVER = wait_fixed(60)  # what wakes such a waiter is a message


class Waiting:
    """A thread that waits for ``lock`` and gives it back at once."""

    def __init__(self, lock, **options):
        self.outcome: Any = None
        self._lock = lock
        self._options = options
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self):
        try:
            self.outcome = self._lock.acquire(**self._options)
            if self.outcome is not None:
                self._lock.release()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.outcome = error

    def end(self, seconds=10.0):
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "it still waits"
        return self.outcome


def subscribers_up(world, masters):
    """So many masters confirmed that they will announce what is waited for."""
    try:
        channels = list(world.connections(masters).subscriptions._channels.values())
    except (AssertionError, ValueError):  # there are no connections yet
        return 0
    confirmed = [channel.confirmed for channel in channels]
    return min((bits.bit_count() for bits in confirmed), default=0)
