"""Signals whose handlers raise, some hundred times: a connection may be torn, and no lock and no key is lost (R2, R11)."""

import contextlib
import gc
import random
import signal
import threading

from redlock import Masters
from tests.servers.interrupt import Struck
from tests.servers.look import all_up, eventually, nothing_left

STRIKES = 500


class Storm:
    """Each strike is let loose once, and comes some microseconds later: in the middle of anything, or never."""

    def __init__(self):
        self.struck = 0
        self._armed = False
        self._chance = random.Random(1)

    def _strike(self, *_):
        if self._armed:
            self._armed = False
            self.struck += 1
            raise Struck

    @contextlib.contextmanager
    def raging(self):
        before = signal.signal(signal.SIGALRM, self._strike)
        gc.disable()  # what strikes inside of a callback of it is lost in Python
        try:
            yield
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            gc.enable()

    def arm(self):
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(2e-5, 1e-2))

    def disarm(self):
        self._armed = False


def test_a_storm_of_signals_in_threads(redlock_servers):
    """The thread that is struck often leads: it reads and writes for three others, whose locks are never in doubt."""
    storm, over = Storm(), threading.Event()
    failed: list[Exception] = []
    counts = dict.fromkeys(range(3), 0)

    def others(number):
        try:
            while not over.is_set():
                with masters.lock(f"other-{number}", ttl=30, timeout=10):
                    counts[number] += 1
        except Exception as error:  # noqa: BLE001 - for the test to look at
            failed.append(error)

    with Masters(redlock_servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        threads = [threading.Thread(target=others, args=(number,)) for number in counts]
        for thread in threads:
            thread.start()
        done = 0
        with storm.raging():
            while not failed and (storm.struck < STRIKES or done < STRIKES or min(counts.values()) < STRIKES):
                try:
                    storm.arm()
                    with masters.lock(f"job-{done % 7}", ttl=30, timeout=10):
                        done += 1
                    storm.disarm()
                except Struck:
                    gc.collect()  # a statement that was torn is given back when its frame has gone
        over.set()
        for thread in threads:
            thread.join()
        assert not failed
        eventually(lambda: nothing_left(redlock_servers) and all_up(masters))  # the last strike may have torn some
        with masters.lock("job-0", timeout=1) as lease:
            assert {vote.outcome for vote in lease.votes} <= {"granted", "pending"}
