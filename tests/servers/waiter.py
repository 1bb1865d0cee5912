"""Somebody who waits for a lock in a thread, and how far the subscriptions are."""

from tenacity import wait_fixed

from tests.servers.look import Doing

NEVER = wait_fixed(60)  # what wakes such a waiter is a message


class Waiting(Doing):
    """A thread that waits for ``lock`` and gives it back at once."""

    def __init__(self, lock, **options):
        def wait():
            lease = lock.acquire(**options)
            if lease is not None:
                lock.release()
            return lease

        super().__init__(wait)


def subscribers_up(world, masters):
    """So many masters confirmed that they will announce what is waited for."""
    try:
        channels = list(world.connections(masters).subscriptions._channels.values())
    except (AssertionError, ValueError):  # there are no connections yet
        return 0
    confirmed = [channel.confirmed for channel in channels]
    return min((bits.bit_count() for bits in confirmed), default=0)
