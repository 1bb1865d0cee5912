"""What no caller does: connect in the background, read late answers, send what is owed, keep leases.

One thread a `Masters`, asleep while all masters are up and have answered and no lease is due.  Connecting takes a thread of
its own, for as long as it takes: redis-py blocks, and one master that hangs must not delay another.

At its end it ends the renewals that are under way.  Left to the garbage collector they would end in any thread,
in the middle of anything.  The collector may run two things of ours all the same: a generator that is thrown
away, and the end of a pipe.  Neither takes a lock, and each changes one thing in one step.

Also considered: a thread for each master (a hand-over costs more than the round trip), one thread for all I/O
(two hand-overs a round), a pool of redis-py clients (three times slower, and no order between an acquire and
its release).
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from redlock import _clock
from redlock._base.feed import Feed
from redlock._base.links import CLOSED, TICK, report, report_failure
from redlock._connect import Dial
from redlock._core.effects import Wait
from redlock._core.listen import LINGER
from redlock._core.outcomes import Failure
from redlock._thread import start, why_not
from redlock._threads.keeper import Keeper
from redlock._threads.waiter import Waiter
from redlock.errors import RedlockError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from redlock._base.links import News
    from redlock._base.observer import Observer
    from redlock._base.stream import Stream
    from redlock._core.electorate import Facts
    from redlock._threads.links import Links

# A timeout of poll() stands still while the machine sleeps, and the clock of rule R5 does not: with
# leases to keep, look at least so often, in seconds.
_LONGEST_NAP = 1.0
_LOOK: Any = None  # an event that says nothing
# Who waits for the first connections looks for them so often, in seconds: often at first, for most take a millisecond.
_GLANCE, _LONGEST_GLANCE = 0.0005, 0.02
# How long `close` waits for a thread that is in the middle of connecting, in seconds.
_FAREWELL = 1.0


class Housekeeper:
    """Keeps the links of one `Masters` up, and lends its thread to the `Keeper`."""

    def __init__(
        self,
        links: Links,
        *,
        connect_timeout: float,
        prefix: str,
        max_ttl: float,
        observer: Observer | None,
    ) -> None:
        self._links = links
        self._connect_timeout = connect_timeout
        self._prefix = prefix
        self._max_ttl = max_ttl
        self._observer = observer
        self.keeper = Keeper(links, self._nudge)
        self._awaits = False  # answers, and is not to be reached by the bell alone
        self._ending = False
        self._thread: threading.Thread | None = None
        self._dialling: set[threading.Thread] = set()

    def start(self) -> None:
        """Connect to all masters in the background, if that has not begun yet.  RedlockError: that cannot begin."""
        with self._links.mutex:
            if self._thread is None and not self._ending:
                thread = threading.Thread(target=self._run, name="redlock-links", daemon=True)
                start(thread)
                self._thread = thread

    def wait_until_decided(self) -> None:
        """Until a majority is up or known to be down, at most `connect_timeout` (R2).

        Then for the rest as long again as that took: the first lease should have all its keys.
        """
        began = _clock.now()
        self._links.mend()
        self._wait_for(self._links.decide, self._connect_timeout)
        took = _clock.now() - began
        self._wait_for(self._links.tried, min(took, self._connect_timeout - took))

    def _wait_for(self, there: Callable[[], bool], seconds: float) -> None:
        """Look now and then.

        A `threading.Condition` would be told, but a Ctrl-C in its `wait` can come before it has the mutex back;
        then the `with` around it releases what it does not have, or what another thread has.
        """
        until = _clock.now() + seconds
        pause = _GLANCE
        while True:
            with self._links.mutex:
                if self._over or there():
                    return
            left = until - _clock.now()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_GLANCE)

    @property
    def _over(self) -> bool:
        """Nothing is connected for anybody any more."""
        return self._ending or self._links.closing

    def settle(self, seconds: float) -> None:
        """Give masters that are owed a release so long to answer it (R11).

        At the end operations have to take back first what they asked for.
        """
        until = _clock.now() + seconds
        waiter = Waiter(self._links.relay)
        self._links.flush()  # what a leader that never came back has left
        try:
            while _clock.now() < until and self._owes():
                self._links.wait(Wait(min(until, _clock.now() + TICK / 10)), waiter)
        finally:
            self._links.forget(waiter)

    def _owes(self) -> bool:
        links = self._links
        with links.mutex:
            return links.owe() or (links.closing and bool(links.running))

    def end(self) -> None:
        """Stop, from wherever: takes no lock, so that a garbage collection may call it."""
        self._ending = True
        self._links.bell.ring()

    def join(self) -> None:
        """Wait until no thread and no socket is left, after `end`.

        A thread that is connecting may be inside the resolver, a TLS handshake or somebody's credential
        provider, where nothing can wake it.  It is waited for a moment, and then closes what it gets.  Our caller may be
        an observer, told in one of these threads, which then ends as soon as it returns.
        """
        this = threading.current_thread()
        if self._thread is None:
            self._links.close()
        elif self._thread is not this:
            self._thread.join()
            with self._links.mutex:
                dialling = [thread for thread in self._dialling if thread is not this]
            until = _clock.now() + _FAREWELL
            for thread in dialling:
                while thread.is_alive() and _clock.now() < until:
                    self._abort_dials()  # again: one may have had no socket yet that could be shut down
                    thread.join(_FAREWELL / 50)

    def _abort_dials(self) -> None:
        for link in self._links.streams:
            dial = link.dial
            if dial is not None:
                dial.abort()

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._links.mutex:  # whoever started us may have been interrupted before that was noted
            if self._thread is None:
                self._thread = threading.current_thread()
            ours = self._thread is threading.current_thread()
        if not ours:
            return
        try:
            self._keep_house()
        finally:
            self._links.close()
            self._abort_dials()
            for renewal in list(self.keeper.operations):  # here, and not by the collector wherever that strikes
                renewal.interrupt(RedlockError(CLOSED))

    def _nudge(self) -> None:
        """Do not wait any longer: there is work for the keeper."""
        self._links.bell.ring()
        if self._awaits:
            self.keeper.waiter.events.append(_LOOK)
            self._links.nudge(self.keeper.waiter)

    def _keep_house(self) -> None:
        while not self._ending:
            try:
                self._once_around()
            except BaseException:  # noqa: BLE001 - of a user's callback; the leases of everybody depend on us
                report_failure("looking after the masters failed")
                time.sleep(TICK)  # not on and on

    def _once_around(self) -> None:
        links, keeper = self._links, self.keeper
        # Before the work: what comes while it goes on is seen by it, or rings.
        self._awaits = bool(keeper.operations)
        due = keeper.work()
        now = _clock.now()
        news: News = []
        with links.mutex:
            timeout = min(self._chores(now, news), due - now)
            links.dozing = timeout > TICK and not keeper.operations
        report(news, self._observer)
        if self._ending:
            return
        if keeper.operations:
            self._await_answers(now + min(timeout, TICK))
        else:
            links.forget(keeper.waiter)
            self._doze(None if timeout == math.inf else max(0.0, timeout))

    def _await_answers(self, until: float) -> None:
        """Of the masters, to what the keeper asked."""
        if not self._awaits:
            return  # it has begun just now: once more around, see there
        self._links.wait(Wait(until), self.keeper.waiter)
        self._links.let_others_run(self.keeper.waiter)  # it leads on, and may be busy with somebody's callback first
        self.keeper.waiter.events.clear()

    def _doze(self, timeout: float | None) -> None:
        """Until a connection breaks, or somebody rings."""
        links = self._links
        ready = links.watch.poll(None if timeout is None else min(timeout, _LONGEST_NAP) * 1000 + 1)
        with links.mutex:
            links.dozing = False
            now = _clock.now()
            for fd, _ in ready:
                if fd == links.bell.fd:
                    links.bell.silence()
                else:
                    links.hung_up(fd, now)

    def _chores(self, now: float, news: News) -> float:
        """Do what is due; returns the seconds until there is more, infinity: nothing until somebody rings."""
        links = self._links
        news += links.quieten(now)
        pause = LINGER / 2 if links.listeners else math.inf
        for stream in links.streams:
            if stream.sock is None and stream.dial is None and links.wanted(stream):
                if now >= stream.retry_at:
                    self._dial(stream)
                else:
                    pause = min(pause, stream.retry_at - now)
        for link in links.all:
            if link.sock is None:
                link.pipeline.due(now)  # it is down: this only forgets what has expired
            elif not link.pipeline.idle:
                links.look(link, now)
                links.settle_debts(link, now)
                pause = min(pause, TICK)
        return pause

    # -- connecting ----------------------------------------------------------------------------------

    def _dial(self, link: Stream) -> None:
        dial = Dial(link.endpoint, self._connect_timeout)
        name = f"redlock-connect-{link.endpoint.name}"
        thread = threading.Thread(target=self._connect, args=(link, dial), name=name, daemon=True)
        link.dial = dial
        self._dialling.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # try again later, unless that is of no use
            reason, for_good = why_not(error)
            link.dial = None
            self._dialling.discard(thread)
            self._links.unattached(link, Failure("error", reason, sent=False, configuration=for_good))

    def _connect(self, link: Stream, dial: Dial) -> None:
        try:
            try:
                made = (dial.bare(), None) if isinstance(link, Feed) else dial(self._prefix, self._max_ttl)
            except BaseException as error:  # noqa: BLE001 - whatever it is, this master is down and it says why
                self._failed(link, dial.failure(error))
            else:
                self._connected(link, *made)
        finally:  # also if somebody's logging handler raises
            with self._links.mutex:
                link.dial = None
                self._dialling.discard(threading.current_thread())
                self._links.bell.ring()

    def _connected(self, link: Stream, sock: socket.socket, facts: Facts | None) -> None:
        with self._links.mutex:
            if self._ending:
                sock.close()
                return
            news = self._links.attach(link, sock, facts, _clock.now())
        report(news, self._observer)

    def _failed(self, link: Stream, failure: Failure) -> None:
        with self._links.mutex:
            news = self._links.unattached(link, failure)
        if not self._ending:
            report(news, self._observer)
