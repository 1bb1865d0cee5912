"""All links of one `Masters`, shared by all its locks and threads.

A round runs in the caller's thread: it writes to all masters and polls them all, without a hand-over
to another thread.  When several threads wait, one of them leads: it reads for everybody and wakes
whose answer came; when it has its own it hands the lead to one of those who follow.  What no caller
does, connecting and late answers and owed releases, is the business of the `Housekeeper`.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING

from redlock import _clock, _connect
from redlock._core.effects import Failure, Reply, Timeout
from redlock._core.quorum import majority
from redlock._core.retry import BETWEEN_CONNECTIONS, delay
from redlock._threads.bell import Bell
from redlock._threads.link import Link
from redlock.errors import RedlockError

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from redlock._connect import Endpoint
    from redlock._core.effects import Event, Send
    from redlock._core.electorate import Electorate, Facts
    from redlock._core.pipeline import Entry
    from redlock._threads.waiter import Waiter

TICK = 0.1              # how long a late answer or an owed release may lie about, in seconds
_LONGEST_POLL = 3600.0
_SETTLED = 1.0          # a connection that lasted for so many seconds is made again without a pause
# How long one follows without hearing from the one who leads, in seconds: at first, and in the end.
_PATIENCE, _MOST_PATIENCE = 0.01, 0.5
# "The other side has hung up" without "there is something to read": Linux has a name for it; elsewhere
# a hang-up is reported whatever one asks for.
_HANGUP: int = getattr(select, "POLLRDHUP", 0)
_CLOSED = "these Masters were closed"
_INTERRUPTED = ConnectionAbortedError("interrupted in the middle of a message")


class Links:
    """The connections to all masters, and who reads them.

    ``mutex`` guards the links, their pipelines and who leads.  Nothing blocks while it is held.
    """

    def __init__(self, endpoints: Sequence[Endpoint], electorate: Electorate, node_timeout: float) -> None:
        self.all = [Link(master, target, node_timeout) for master, target in enumerate(endpoints)]
        self.electorate = electorate
        self.mutex = threading.Lock()
        self.changed = threading.Condition(self.mutex)      # a link came up, or failed to
        self.watch = select.poll()      # of the housekeeper: hang-ups only, so that answers do not wake it
        self.dozing = False             # the housekeeper sleeps until somebody rings
        self.bell = Bell()              # for the housekeeper
        self.watch.register(self.bell.fd, select.POLLIN)
        self._poll = select.poll()      # of whoever leads
        self._lead_bell = Bell()        # there is one more link to read from
        self._poll.register(self._lead_bell.fd, select.POLLIN)
        self._by_fd: dict[int, Link] = {}
        self._leader: Waiter | None = None
        self._followers: dict[Waiter, None] = {}    # in the order in which they came
        self._polling = False
        self._closed = False

    # -- for the driver ------------------------------------------------------------------------------

    def send(self, request: Send, waiter: Waiter) -> None:
        """Write ``request`` to its masters; for those that are down the answer is there at once."""
        data = _connect.pack(request.call)
        links = self.all if request.to is None else [self.all[master] for master in request.to]
        with self.mutex:
            self._refuse_if_closed()
            request.sent_at = now = _clock.now()
            for link in links:
                pipeline = link.pipeline
                if link.torn:
                    self._read(link, now)
                link.torn = True
                failure = pipeline.submit(request, waiter, now)
                if failure is not None and pipeline.down is None:
                    # It is silent for long.  Or it was us who were stopped, and the answers are here.
                    link.torn = False
                    self._read(link, now)
                    link.torn = True
                    failure = pipeline.submit(request, waiter, now)
                if failure is None:
                    try:
                        link.write(data)
                    except OSError as error:
                        self.detach(link, error, now)
                    if link.backlog:
                        self._poll.modify(link.fd, select.POLLIN | select.POLLOUT)
                elif request.open:
                    waiter.events.append(Reply(request, pipeline.master, now, None, failure))
                link.torn = False

    def wait(self, until: float, waiter: Waiter) -> Event:
        """The next event for ``waiter``, or `Timeout`.

        Who leads goes on leading until its operation is over: it is back here in microseconds.  Unless
        it was interrupted in just the wrong moment, and never comes; so after a while of nobody reading
        whoever follows takes the lead.
        """
        events = waiter.events
        slept, patience = False, _PATIENCE
        while not events:
            if self._leader is not waiter:
                with self.mutex:
                    if self._leader is None or (slept and not self._polling):
                        self._leader = waiter
                        self._followers.pop(waiter, None)
                    elif not events:
                        waiter.prepare()
                        self._followers[waiter] = None
                    else:
                        break
            now = _clock.now()
            if now >= until:
                return Timeout(now)
            if self._leader is waiter:
                self._lead(until, waiter)
            else:
                slept = waiter.sleep(min(until - now, patience))
                patience = min(2 * patience, _MOST_PATIENCE)
            self._refuse_if_closed()
        return events.popleft()

    def forget(self, waiter: Waiter) -> None:
        """``waiter`` neither leads nor follows any more; somebody else leads if somebody waits."""
        if self._leader is not waiter and waiter not in self._followers:
            return
        with self.mutex:
            self._followers.pop(waiter, None)
            if self._leader is waiter:
                self._leader = next(iter(self._followers), None)
                if self._leader is not None:
                    del self._followers[self._leader]
                    self._leader.wake()

    def finish(self, waiter: Waiter) -> None:
        """The operation of ``waiter`` is over; late answers to it are the housekeeper's business."""
        self.forget(waiter)
        if self.dozing:
            with self.mutex:        # under it nobody closes the bell
                self._wake_housekeeper()

    def _lead(self, until: float, waiter: Waiter) -> None:
        """Read for everybody until there is an event for ``waiter``, or ``until``."""
        while self._leader is waiter and not (waiter.events or self._closed):
            left = until - _clock.now()
            if left <= 0:
                return
            self._polling = True
            try:
                # poll() counts whole milliseconds and rounds down: one more, or it would spin at the end
                ready = self._poll.poll(min(left, _LONGEST_POLL) * 1000 + 1)
            except RuntimeError:    # somebody who led before is still at it, and reads for us, too
                waiter.prepare()
                waiter.sleep(_PATIENCE)
                return
            finally:
                self._polling = False
            now = _clock.now()
            with self.mutex:
                for fd, _ in ready:
                    link = self._by_fd.get(fd)
                    if link is not None:
                        self._read(link, now)
                    elif fd == self._lead_bell.fd:
                        self._lead_bell.silence()

    # -- for the housekeeper, with the mutex held ----------------------------------------------------

    def decide(self) -> bool:
        """Whether a majority is up, or so many failed that there can be none (R2)."""
        need = majority(len(self.all))
        up = sum(link.pipeline.down is None for link in self.all)
        failed = sum(link.failures > 0 for link in self.all)
        return up >= need or len(self.all) - failed < need

    def tried(self) -> bool:
        """Whether every master is up, or failed at least once."""
        return all(link.pipeline.down is None or link.failures > 0 for link in self.all)

    def attach(self, link: Link, sock: socket.socket, facts: Facts, now: float) -> str | None:
        """A connection was made: vote from now on, and first of all send what is owed (R10)."""
        notice = self.electorate.admit(link.pipeline.master, facts, now)
        link.open(sock, now)
        self._by_fd[link.fd] = link
        self._poll.register(link.fd, select.POLLIN)
        self.watch.register(link.fd, _HANGUP)
        self.settle_debts(link, now)
        self._lead_bell.ring()
        self.changed.notify_all()
        return notice

    def settle_debts(self, link: Link, now: float) -> None:
        """Write the releases that are owed to this master."""
        if link.torn:
            self._read(link, now)
        debts = link.pipeline.due(now)
        link.torn = True
        try:
            for entry in debts:
                link.write(_connect.pack(entry.request.call))
        except OSError as error:
            self.detach(link, error, now)
        if link.backlog:
            self._poll.modify(link.fd, select.POLLIN | select.POLLOUT)
        link.torn = False

    def look(self, link: Link, now: float) -> None:
        """Read what has arrived, unless a caller does it anyway."""
        if not self._polling or link.torn:
            self._read(link, now)

    def hung_up(self, fd: int, now: float) -> None:
        link = self._by_fd.get(fd)
        if link is not None:
            self._read(link, now)

    def detach(self, link: Link, error: OSError, now: float) -> None:
        """The connection is gone.  What it carried fails, and its releases are owed."""
        link.torn = True
        fd = link.fd
        if self._by_fd.get(fd) is link:     # not that of a link that got the number after an interruption
            del self._by_fd[fd]
            self._poll.unregister(fd)
            self.watch.unregister(fd)
        text = error.strerror or str(error) or type(error).__name__
        # Until now its process may have been alive: a replica that was started before is one (R21).
        self.electorate.heard(link.pipeline.master, now)
        for entry, reply in link.pipeline.broken(Failure("error", f"connection lost: {text}"), now):
            self._deliver(entry, reply)
        link.close(abort=not self._closed)
        # At once, unless it was let in only to be thrown out: that could go on for ever.
        link.retry_at = now if now - link.opened_at > _SETTLED else now + delay(BETWEEN_CONNECTIONS, 1)
        link.torn = False
        self._wake_housekeeper()
        if self._polling:
            self._lead_bell.ring()      # who leads may have lost its vote here, and is not told by a hang-up

    def close(self) -> None:
        """Close every descriptor.  Operations under way fail."""
        with self.mutex:
            self._closed = True
            now = _clock.now()
            for link in self.all:
                if link.sock is not None:
                    self.detach(link, ConnectionAbortedError(_CLOSED), now)
            self.changed.notify_all()
            for follower in self._followers:
                follower.wake()
            self._lead_bell.ring()
            self._lead_bell.close()
            self.bell.close()

    def disown(self) -> None:
        """Close our copies of the descriptors without a word to the other side."""
        for link in self.all:
            sock, link.sock = link.sock, None
            if sock is not None:
                with contextlib.suppress(OSError):      # its owner was closing it when we were forked
                    os.close(sock.detach())
        self.bell.close()
        self._lead_bell.close()

    # -- with the mutex held -------------------------------------------------------------------------

    def _wake_housekeeper(self) -> None:
        self.dozing = False
        self.bell.ring()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RedlockError(_CLOSED)

    def _read(self, link: Link, now: float) -> None:
        if link.sock is None:
            return
        if link.torn:   # found like this: somebody was interrupted, see `Link`
            self.detach(link, _INTERRUPTED, now)
            return
        link.torn = True
        try:
            if link.backlog:
                link.flush()
                if not link.backlog:
                    self._poll.modify(link.fd, select.POLLIN)
            link.read(now, self._deliver)
        except OSError as error:
            self.detach(link, error, now)
        if link.backlog:
            self._poll.modify(link.fd, select.POLLIN | select.POLLOUT)
        link.torn = False
        if self.dozing and link.pipeline.owes:
            self._wake_housekeeper()    # the master could not do a release now: it is tried again

    def _deliver(self, entry: Entry[Waiter], reply: Reply) -> None:
        if not entry.request.open:
            return      # a straggler: its round is decided
        entry.inbox.events.append(reply)
        entry.inbox.wake()
