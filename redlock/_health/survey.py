"""Asking all masters at once. The time is limited, however many masters hang."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING

from redlock._health.examine import Examination
from redlock._system import clock
from redlock._system.thread import start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redlock._connect import Endpoint
    from redlock._health.facts import MasterFacts

# Seconds that the other examinations get when the finished ones are enough.
_A_MOMENT = 0.02


def throw_away_name() -> str:
    """The name of a lock that no other client uses."""
    return f"redlock-check:{secrets.token_hex(8)}"


class Survey:
    """One look at every master, each in a thread of its own, for ``patience`` seconds.

    A thread that is inside the resolver at the end cannot be woken. It is a daemon, and ends by itself. The others
    have ended when `stop` returns, if their examination is done.
    """

    def __init__(self, endpoints: Sequence[Endpoint], prefix: str, patience: float, *, records: bool = False) -> None:
        """``records``: the clients confirm expiries (R35)."""
        name = throw_away_name()
        self.size = len(endpoints)
        self._deadline = clock.now() + patience
        self._changed = threading.Condition()
        self._stopped = False
        self._examinations = [Examination(target, prefix, name, patience, records=records) for target in endpoints]
        self._threads: list[tuple[Examination, threading.Thread]] = []

    def start(self) -> None:
        for one in self._examinations:
            thread = threading.Thread(
                target=self._run, args=(one,), name=f"redlock-check {one.facts.name}", daemon=True
            )
            start(thread)
            self._threads.append((one, thread))

    def _run(self, examination: Examination) -> None:
        examination.run()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, enough: Callable[[Sequence[MasterFacts]], bool], until: float) -> list[MasterFacts]:
        """Wait until the finished examinations are ``enough``, or all are finished. Returns their facts.

        ``until``: the latest time, on the clock of R5.
        """

        def done() -> list[MasterFacts]:
            return [one.facts for one in self._examinations if one.done]

        self._wait(lambda: self._all_done() or enough(done()), until)
        self._wait(self._all_done, min(until, clock.now() + _A_MOMENT))
        return done()

    def finish(self) -> list[MasterFacts]:
        """Wait until all have answered or the time is up. Returns the facts of all."""
        self._wait(self._all_done, self._deadline)
        return self.stop()

    def stop(self) -> list[MasterFacts]:
        """End the survey now. Returns what is known of all."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for one, thread in self._threads:
            if one.done:  # the thread ends after a few more instructions
                thread.join()
        return [one.stop() for one in self._examinations]

    def _all_done(self) -> bool:
        return all(one.done for one in self._examinations)

    def _wait(self, condition: Callable[[], bool], until: float) -> None:
        with self._changed:
            while not condition():
                left = until - clock.now()
                if left <= 0:
                    return
                if self._stopped:  # again: when it was stopped, an examination may not have had a connection yet
                    for one in self._examinations:
                        one.stop()
                    left = min(left, _A_MOMENT)
                self._changed.wait(left)
