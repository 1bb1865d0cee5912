"""What is under way on the one connection to one master (R10).

Commands leave in order and their answers come back in that order, so a release can never overtake
its acquire, and whose answer is whose needs no bookkeeping but a queue.  This is that queue, without
the connection: a driver tells it what happened and is told what to do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redlock._core.effects import Failure, Reply
from redlock._core.refusals import ErrorReply

if TYPE_CHECKING:
    from redlock._core.effects import Send

Inbox = TypeVar("Inbox")

_CROWD = 64     # so many debts are kept without a look at whether they have expired

CONNECTING = Failure("error", "still connecting", sent=False)


@dataclass(slots=True, eq=False)
class Entry(Generic[Inbox]):
    """A request that awaits its answer, and where the answer goes."""

    request: Send
    inbox: Inbox
    at: float
    text: bool = False      # sent as text, because the master had forgotten the script


class Pipeline(Generic[Inbox]):
    """The order of one connection, and what is owed to its master when that connection breaks.

    ``patience``: a master that has not answered for so many seconds is sent nothing new, so that a
    frozen one does not pile up requests that nobody waits for.  Releases are still sent: they are
    few, as they concern only what was sent before it froze.
    """

    __slots__ = ("_crowd", "_owed", "_under_way", "down", "heard_at", "master", "patience")

    def __init__(self, master: int, patience: float) -> None:
        self.master = master
        self.patience = patience
        self.down: Failure | None = CONNECTING  # None: connected
        self.heard_at = float("-inf")
        self._under_way: deque[Entry[Inbox]] = deque()
        self._owed: list[Entry[Inbox]] = []
        self._crowd = _CROWD

    def submit(self, request: Send, inbox: Inbox, at: float) -> Failure | None:
        """Queue ``request``; the driver writes it.  A `Failure`: it must not be written."""
        entry = Entry(request, inbox, at)
        if self.down is not None:
            if request.owed_until is not None and request.owed_until > at:
                self._owed.append(entry)
                if len(self._owed) > self._crowd:       # or a long outage would fill the memory with them
                    self._forgive(at)
            return self.down
        if request.owed_until is None and self.silent(at):
            silence = at - self._under_way[0].at
            return Failure("timeout", f"no answer for {silence:.3g} s, so not asked", sent=False)
        self._under_way.append(entry)
        return None

    def silent(self, at: float) -> bool:
        """Whether the oldest answer is overdue."""
        return bool(self._under_way) and at - self._under_way[0].at > self.patience

    def answered(self, value: Any, at: float) -> tuple[Entry[Inbox], Reply | None]:
        """The next answer came.  Without a `Reply` the entry is to be written again, as text.

        IndexError: nothing was asked, so whatever this connection carries cannot be trusted.

        A master that forgot its scripts is given the text once.  Only while somebody still counts,
        or if it is owed: an acquire whose attempt is over must not be revived behind its release.
        """
        entry = self._under_way.popleft()
        self.heard_at = at
        request = entry.request
        if type(value) is not ErrorReply:
            return entry, Reply(request, self.master, at, value)
        wanted = request.open or request.owed_until is not None
        if value.code == "NOSCRIPT" and wanted and not entry.text:
            entry.text, entry.at = True, at
            self._under_way.append(entry)
            return entry, None
        if value.passing and request.owed_until is not None:
            self._owed.append(entry)
        return entry, Reply(request, self.master, at, None, value.failure())

    def broken(self, failure: Failure, at: float) -> list[tuple[Entry[Inbox], Reply]]:
        """The connection is gone: what fails now.  Releases among it are owed from now on."""
        self.down = Failure(failure.outcome, failure.reason, sent=False, configuration=failure.configuration)
        failed = []
        for entry in self._under_way:
            if entry.request.owed_until is not None:
                self._owed.append(entry)
            failed.append((entry, Reply(entry.request, self.master, at, None, failure)))
        self._under_way.clear()
        return failed

    def connected(self) -> None:
        """A new connection is made and its handshake done; `due` says what to write first."""
        self.down = None

    def due(self, at: float) -> list[Entry[Inbox]]:
        """Owed releases to write now, in their order.  Those whose keys must have expired are dropped."""
        if not self._owed:
            return []
        self._forgive(at)
        if self.down is not None:
            return []
        due, self._owed = self._owed, []
        for entry in due:
            entry.at, entry.text = at, False
        self._under_way.extend(due)
        return due

    def _forgive(self, at: float) -> None:
        """Drop debts whose keys must have expired."""
        self._owed = [entry for entry in self._owed if (entry.request.owed_until or at) > at]
        self._crowd = max(_CROWD, 2 * len(self._owed))

    @property
    def idle(self) -> bool:
        return not self._under_way and not self._owed

    @property
    def in_debt(self) -> bool:
        """Whether a release has to be written again; `due` has it."""
        return bool(self._owed)

    @property
    def owes(self) -> bool:
        """Whether a release has not been answered yet."""
        return bool(self._owed) or any(entry.request.owed_until is not None for entry in self._under_way)
