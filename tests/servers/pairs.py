"""`Masters` whose connections lead to masters of a few lines each, on pairs of sockets.

There is no background: nobody reads but whom the test has read.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from redlock import Masters, _clock
from redlock._core.voters import Facts
from redlock._io import waiter as threads_that_wait
from redlock._io.waiter import Waiter
from tests.asyncio.virtual import MASTERS, Fake
from tests.servers.look import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

NODE_TIMEOUT = 1.5  # some wait for its end; the others must not come near it on a slow machine
LONG = 30.0  # nobody waits for so long: it is there so that no test relies on a short time
ALL = range(MASTERS)


def never_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each relies on the other for ever: whatever was lost shows."""
    monkeypatch.setattr(threads_that_wait, "_PATIENCE", LONG)
    monkeypatch.setattr(threads_that_wait, "_MOST_PATIENCE", LONG)
    monkeypatch.setattr(threads_that_wait, "_LET_RUN", LONG)


class Pairs:
    """`Masters` whose connections lead to fakes, and a `leader` that is the test itself."""

    def __init__(self, node_timeout: float) -> None:
        urls = [f"redis://fake-{number}:6379" for number in ALL]
        self.fakes = [Fake() for _ in ALL]
        self.masters = Masters(urls, restart_guard=False, node_timeout=node_timeout)
        self.driver = self.masters._runtime.make_driver()
        self.driver._ready = True  # no thread of its own
        self.connections = self.driver._connections
        for number in ALL:
            self.attach(number)
        self.leader = Waiter(self.connections)
        self.connections.leader = self.leader

    def attach(self, number: int) -> None:
        with self.connections.mutex:
            fake = self.fakes[number]
            self.connections.attach(
                self.connections.all[number], fake.theirs, Facts(f"run-{number}", 10**6), _clock.now()
            )

    def read_at_once(self) -> None:
        """The leading thread reads from all masters, for all threads, in one walk."""
        connections = self.connections
        with connections.mutex:
            connections.reader = self.leader
            connections.read_ready([(connection.fd, 1) for connection in connections.all], _clock.now())
            connections.reader = None

    def answer(self, *numbers: int) -> None:
        """Those, or all of them, hear what was sent to them, and answer."""
        self.connections.flush()
        for number in numbers or ALL:
            with contextlib.suppress(OSError):  # it was hung up on
                self.fakes[number].hear()

    def read(self, *numbers: int) -> None:
        """As who leads does it."""
        for number in numbers or ALL:
            with self.connections.mutex:
                self.connections._read(self.connections.all[number], _clock.now())

    def resign(self) -> None:
        self.leader.stop_waiting()

    def answer_until_over(self, thread: threading.Thread) -> None:
        """... which leads itself now."""
        while thread.is_alive():
            self.answer()
            time.sleep(0.001)
        thread.join()

    def nothing_left(self) -> bool:
        """Once those that were hung up on are connected again."""
        for number in ALL:
            if self.connections.all[number].sock is None:
                self.fakes[number].sock.close()
                self.fakes[number].connect()
                self.attach(number)
        self.answer()
        self.read()
        return not any(fake.keys for fake in self.fakes) and not self.connections.owe()

    def close(self) -> None:
        self.leader.stop_waiting()
        self.answer()
        self.masters.close()
        for fake in self.fakes:
            fake.sock.close()


class Follower(threading.Thread):
    """Does ``work`` while the test leads; it begins when that waits for masters."""

    def __init__(self, pairs: Pairs, work: Callable[[], Any]) -> None:
        super().__init__()
        self.result: Any = None
        self._work = work
        self.start()
        eventually(lambda: pairs.connections.followers or not self.is_alive())

    def run(self) -> None:
        try:
            self.result = self._work()
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.result = error

    def end(self) -> Any:
        self.join(10)
        assert not self.is_alive()
        return self.result
