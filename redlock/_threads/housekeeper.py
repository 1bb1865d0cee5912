"""What no caller does: connect in the background, read late answers, send what is owed.

One thread a `Masters`, asleep while all masters are up and have answered.  Connecting takes a thread of
its own, for as long as it takes: redis-py blocks, and one master that hangs must not delay another.
"""

from __future__ import annotations

import logging
import math
import threading
from typing import TYPE_CHECKING

from redlock import _clock
from redlock._connect import Dial
from redlock._core.effects import Failure
from redlock._core.retry import BETWEEN_CONNECTIONS, delay
from redlock._threads.links import TICK
from redlock._threads.waiter import Waiter

if TYPE_CHECKING:
    import socket

    from redlock._core.electorate import Facts
    from redlock._threads.link import Link
    from redlock._threads.links import Links

# How long `close` waits for a thread that is in the middle of connecting, in seconds.
_FAREWELL = 1.0

log = logging.getLogger("redlock")
log.addHandler(logging.NullHandler())   # whether and where it is shown is the application's choice


class Housekeeper:
    """Keeps the links of one `Masters` up."""

    def __init__(self, links: Links, *, connect_timeout: float, prefix: str, max_ttl: float) -> None:
        self._links = links
        self._connect_timeout = connect_timeout
        self._prefix = prefix
        self._max_ttl = max_ttl
        self._ending = False
        self._thread: threading.Thread | None = None
        self._dialling: set[threading.Thread] = set()

    def start(self) -> None:
        """Connect to all masters in the background, if that has not begun yet."""
        with self._links.mutex:
            if self._thread is None and not self._ending:
                thread = threading.Thread(target=self._run, name="redlock-links", daemon=True)
                thread.start()
                self._thread = thread

    def wait_until_decided(self) -> None:
        """Until a majority is up or known to be down, at most `connect_timeout` (R2).

        Then for the rest as long again as that took: the first lease should have all its keys.
        """
        links = self._links
        began = _clock.now()
        with links.mutex:   # the lock of `changed`
            links.changed.wait_for(lambda: self._ending or links.decide(), self._connect_timeout)
            took = min(_clock.now() - began, self._connect_timeout - (_clock.now() - began))
            links.changed.wait_for(lambda: self._ending or links.tried(), max(0.0, took))

    def settle(self, seconds: float) -> None:
        """Give masters that are owed a release so long to answer it (R11)."""
        until = _clock.now() + seconds
        waiter = Waiter()
        try:
            while _clock.now() < until and self._owes():
                self._links.wait(min(until, _clock.now() + TICK / 10), waiter)
        finally:
            self._links.forget(waiter)

    def _owes(self) -> bool:
        with self._links.mutex:
            for link in self._links.all:
                if link.pipeline.owes:
                    return True
        return False

    def end(self) -> None:
        """Stop, from wherever: takes no lock, so that a garbage collection may call it."""
        self._ending = True
        self._links.bell.ring()

    def join(self) -> None:
        """Wait until no thread and no socket is left, after `end`.

        A thread that is connecting may be inside the resolver, a TLS handshake or somebody's credential
        provider, where nothing can wake it.  It is waited for a moment, and then closes what it gets.
        """
        if self._thread is None:
            self._links.close()
        elif self._thread is not threading.current_thread():
            self._thread.join()
            with self._links.mutex:
                dialling = list(self._dialling)
            until = _clock.now() + _FAREWELL
            for thread in dialling:
                while thread.is_alive() and _clock.now() < until:
                    self._abort_dials()     # again: one may have had no socket yet that could be shut down
                    thread.join(_FAREWELL / 50)

    def _abort_dials(self) -> None:
        for link in self._links.all:
            dial = link.dial
            if dial is not None:
                dial.abort()

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._keep_house()
        finally:
            self._links.close()
            self._abort_dials()

    def _keep_house(self) -> None:
        links = self._links
        while not self._ending:
            with links.mutex:
                timeout = self._chores(_clock.now())
                links.dozing = timeout is None or timeout > TICK
            if self._ending:
                break
            ready = links.watch.poll(None if timeout is None else timeout * 1000 + 1)
            with links.mutex:
                links.dozing = False
                now = _clock.now()
                for fd, _ in ready:
                    if fd == links.bell.fd:
                        links.bell.silence()
                    else:
                        links.hung_up(fd, now)

    def _chores(self, now: float) -> float | None:
        """Do what is due; returns the seconds until there is more, None: nothing until somebody rings."""
        links = self._links
        pause = math.inf
        for link in links.all:
            if link.sock is None and link.dial is None:
                if now >= link.retry_at:
                    self._dial(link)
                else:
                    pause = min(pause, link.retry_at - now)
                link.pipeline.due(now)      # it is down: this only forgets what has expired
            elif link.sock is not None and not link.pipeline.idle:
                links.look(link, now)
                links.settle_debts(link, now)
                pause = min(pause, TICK)
        return None if pause == math.inf else pause

    # -- connecting ----------------------------------------------------------------------------------

    def _dial(self, link: Link) -> None:
        dial = Dial(link.endpoint, self._connect_timeout)
        name = f"redlock-connect-{link.endpoint.name}"
        thread = threading.Thread(target=self._connect, args=(link, dial), name=name, daemon=True)
        link.dial = dial
        self._dialling.add(thread)
        try:
            thread.start()
        except RuntimeError as error:       # no more threads to be had: try again later
            link.dial = None
            self._dialling.discard(thread)
            self._down(link, Failure("error", str(error), sent=False))

    def _connect(self, link: Link, dial: Dial) -> None:
        try:
            try:
                sock, facts = dial(self._prefix, self._max_ttl)
            except Exception as error:  # noqa: BLE001 - whatever it is, this master is down and it says why
                self._failed(link, dial.failure(error))
            else:
                self._connected(link, sock, facts)
        finally:        # also if somebody's logging handler raises
            with self._links.mutex:
                link.dial = None
                self._dialling.discard(threading.current_thread())
                self._links.bell.ring()

    def _connected(self, link: Link, sock: socket.socket, facts: Facts) -> None:
        with self._links.mutex:
            if self._ending:
                sock.close()
                return
            was_down = link.failures > 0
            notice = self._links.attach(link, sock, facts, _clock.now())
        if was_down:
            log.info("master %s is back", link.endpoint.name)
        if notice:
            log.warning("%s", notice)

    def _failed(self, link: Link, failure: Failure) -> None:
        with self._links.mutex:
            self._down(link, failure)
        if link.failures == 1 and not self._ending:     # once, not at every attempt
            log.warning("master %s is down: %s", link.endpoint.name, failure.reason)

    def _down(self, link: Link, failure: Failure) -> None:
        link.failures += 1
        link.retry_at = _clock.now() + delay(BETWEEN_CONNECTIONS, link.failures)
        link.pipeline.down = failure
        self._links.changed.notify_all()
