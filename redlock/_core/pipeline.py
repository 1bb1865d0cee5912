"""The requests under way on the one connection to one master (R10).

Requests leave in order, and their answers come back in that order.  So a release can never overtake its acquire,
and a queue is enough to know which request an answer belongs to.  This file is that queue, without the
connection: the connection tells it what happened, and asks it what to do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from redlock import scripts
from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.outcomes import Failure
from redlock._core.refusals import ErrorReply


class AnswerInbox(Protocol):
    """Where the decided requests of one operation arrive."""

    def put(self, event: Any) -> None: ...


AnyAnswerInbox = TypeVar("AnyAnswerInbox", bound=AnswerInbox)

# A release that is in doubt, or not permitted, is sent again.  The first pause is a quarter of the patience.  Each
# pause is twice as long as the one before, up to eight times the patience.
_FIRST_PAUSE, _LONGEST_PAUSE = 1 / 4, 8
_SWEEP_FROM = 64  # up to so many owed releases are kept before anyone looks whether they have expired

_NOTHING: tuple[Send, ...] = ()  # for `Send.more`

CONNECTING = Failure("error", "still connecting", sent=False)


@dataclass(slots=True, eq=False)
class QueuedRequest(Generic[AnyAnswerInbox]):
    """A request that awaits its answer, and its inbox.  All masters share one object, so it never changes."""

    request: Send
    inbox: AnyAnswerInbox
    at: float
    text: bool = False  # send the text of the script, because the master had forgotten it
    pause: float = 0.0  # the last pause of a release that is sent again, for a `Doubt` or for want of rights


def _with_text(request: Send) -> Send:
    """The request to send with the text of the script that ``request`` needs.

    An acquire whose attempt is over must not be sent again behind its release, and neither must a repair.  But the
    master needs the text of the script.  So the text is sent with a call for no names.  Otherwise a master that
    always answers last would never get it.
    """
    creates = request.call.script in (scripts.ACQUIRE, scripts.REPAIR)
    wanted = request.open or (request.only_if is not None and request.only_if())
    return Send(wire.nothing(request.call.script)) if creates and not wanted else request


class Pipeline(Generic[AnyAnswerInbox]):
    """The queue of one connection, and the releases that are owed to its master when the connection breaks.

    ``patience``: a master that has not answered for so many seconds is sent no new request.  So a frozen master
    does not pile up requests that nobody waits for.  Releases are still sent.  They are few, for they concern only
    what was sent before the master froze.
    """

    __slots__ = ("_more", "_owed", "_sweep_from", "_under_way", "down", "heard_at", "master", "patience")

    def __init__(self, master: int, patience: float) -> None:
        self.master = master
        self.patience = patience
        self.down: Failure | None = CONNECTING  # None: connected
        self.heard_at = float("-inf")
        self._under_way: deque[QueuedRequest[AnyAnswerInbox]] = deque()
        self._owed: list[QueuedRequest[AnyAnswerInbox]] = []
        self._more: list[QueuedRequest[AnyAnswerInbox]] = []
        self._sweep_from = _SWEEP_FROM

    def submit(self, queued: QueuedRequest[AnyAnswerInbox]) -> Failure | None:
        """Put ``queued`` into the queue; the connection writes it.  Returns a `Failure` if it must not be written."""
        under_way = self._under_way
        if self.down is not None:
            self._postpone(queued)
            return self.down
        if under_way:
            silence = queued.at - under_way[0].at
            if silence > self.patience and queued.request.owed_until is None:
                return Failure("timeout", f"no answer for {silence:.3g} s, so not asked", sent=False)
        under_way.append(queued)
        return None

    def _postpone(self, queued: QueuedRequest[AnyAnswerInbox]) -> None:
        """Owe ``queued`` to the master, if it is a release that may still find its key."""
        owed_until = queued.request.owed_until
        if owed_until is not None and owed_until > queued.at:
            self._owed.append(queued)
            if len(self._owed) > self._sweep_from:  # a long outage must not fill the memory
                self._forgive(queued.at)

    def recognised(self, data: bytes, at: float) -> int:
        """Count the usual answers (`Call.usual`) at the beginning of ``data``.  Returns how many bytes they are.

        The caller parses the rest.  No complete value of the protocol is the beginning of another one.  So bytes that
        begin with a usual answer are that answer.
        """
        under_way, end = self._under_way, 0
        while under_way and data.startswith(usual := under_way[0].request.call.usual, end):
            queued = under_way.popleft()
            self.heard_at = at
            end += len(usual)
            request = queued.request
            if request.open and request.voted(self.master, at):
                queued.inbox.put(request)
        return end

    def answered(self, value: Any, at: float) -> bool:
        """The next answer came.  Its request counts it, unless that is decided.  The inbox is told when it decides.

        The requests in `Send.more` are queued behind all that was written, and in front of all that will be written.

        True: the connection is to look at `more` and `in_debt`.

        Raises:
            ConnectionAbortedError: nothing was asked, so nothing on this connection can be trusted.
        """
        try:
            queued = self._under_way.popleft()
        except IndexError:
            raise ConnectionAbortedError("it sent an answer to no question") from None
        self.heard_at = at
        if type(value) is ErrorReply:
            self._refused(queued, value, at)
            return True
        request = queued.request
        # A Ctrl-C may have left requests for another master in here.
        request.more = _NOTHING
        if not request.open:
            request.late(self.master, value, at)
        elif request.answered(self.master, value, at):
            queued.inbox.put(request)
        if request.more:
            self._follow(request, queued.inbox, at)
        if request.doubt is None or not request.doubt.remains(self.master, value):
            return bool(self._more)
        self._ask_again(queued, at)
        return True

    def _ask_again(self, queued: QueuedRequest[AnyAnswerInbox], at: float) -> None:
        """Owe the request again after a pause, twice as long as the last one."""
        pause = min(2 * queued.pause or _FIRST_PAUSE * self.patience, _LONGEST_PAUSE * self.patience)
        self._owed.append(QueuedRequest(queued.request, queued.inbox, at + pause, pause=pause))

    def _refused(self, queued: QueuedRequest[AnyAnswerInbox], error: ErrorReply, at: float) -> None:
        """A master answered an error.  If it forgot the script, it gets the text, once."""
        request = queued.request
        if error.code == "NOSCRIPT" and not queued.text:
            again = QueuedRequest(_with_text(request), queued.inbox, at, text=True, pause=queued.pause)
            self._under_way.append(again)
            self._more.append(again)
            return
        if request.owed_until is not None:
            if error.passing:
                self._owed.append(queued)
            elif error.code == "NOPERM" and len(self._owed) < _SWEEP_FROM:
                # Somebody may grant the right soon.  Mostly nobody does, so only the first releases are sent again.
                self._ask_again(queued, at)
        if request.open and request.failed(self.master, error.failure(), at):
            queued.inbox.put(request)

    def _follow(self, request: Send, inbox: AnyAnswerInbox, at: float) -> None:
        """Queue the requests that an answer asks for, if they are still wanted."""
        for one in request.more:
            if one.only_if is None or one.only_if():
                one.sent_at = at
                queued = QueuedRequest(one, inbox, at)
                self._under_way.append(queued)
                self._more.append(queued)

    def more(self) -> list[QueuedRequest[AnyAnswerInbox]]:
        """The requests to write because of answers.  They are in the queue already, at its end."""
        more, self._more = self._more, []
        return more

    def broken(self, failure: Failure, at: float) -> None:
        """The connection is gone.  All requests under way fail, and the releases among them are owed from now on."""
        self.down = Failure(failure.outcome, failure.reason, sent=False, configuration=failure.configuration)
        failed = list(self._under_way)
        self._under_way.clear()
        self.more()
        self._owed += [queued for queued in failed if queued.request.owed_until is not None]
        for queued in failed:
            request = queued.request
            if request.open and request.failed(self.master, failure, at):
                queued.inbox.put(request)

    def connected(self) -> None:
        """There is a new connection, and its handshake is done.  `due` says what to write first."""
        self.down = None

    def due(self, at: float) -> list[QueuedRequest[AnyAnswerInbox]]:
        """Owed releases to write now, in their order.  Releases whose keys must have expired are dropped."""
        if not self._owed:
            return []
        self._forgive(at)
        if self.down is not None:
            return []
        due = [
            QueuedRequest(queued.request, queued.inbox, at, pause=queued.pause)
            for queued in self._owed
            if queued.at <= at
        ]
        self._owed = [queued for queued in self._owed if queued.at > at]
        self._under_way.extend(due)
        return due

    def _forgive(self, at: float) -> None:
        """Drop owed releases whose keys must have expired."""
        self._owed = [queued for queued in self._owed if (queued.request.owed_until or at) > at]
        self._sweep_from = max(_SWEEP_FROM, 2 * len(self._owed))

    @property
    def idle(self) -> bool:
        return not self._under_way and not self._owed

    @property
    def in_debt(self) -> bool:
        """Whether a release has to be written again, now or later; see `due`."""
        return bool(self._owed)

    @property
    def owes(self) -> bool:
        """Whether a release has not been answered yet."""
        return bool(self._owed) or any(queued.request.owed_until is not None for queued in self._under_way)
