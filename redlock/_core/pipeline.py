"""What is under way on the one connection to one master (R10).

Commands leave in order and their answers come back in that order, so a release can never overtake
its acquire, and whose answer is whose needs no bookkeeping but a queue.  This is that queue, without
the connection: a driver tells it what happened and is told what to do.
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
    """Where the answers for one operation arrive."""

    def put(self, event: Any) -> None: ...


AnyAnswerInbox = TypeVar("AnyAnswerInbox", bound=AnswerInbox)

# A release in doubt, or not permitted, is asked again after a part of the patience; twice as late each time, up to some times the patience.
_FIRST_PAUSE, _LONGEST_PAUSE = 1 / 4, 8
_SWEEP_FROM = 64  # so many debts are kept without a look at whether they have expired

_NOTHING: tuple[Send, ...] = ()  # asked for by an answer

CONNECTING = Failure("error", "still connecting", sent=False)


@dataclass(slots=True, eq=False)
class QueuedRequest(Generic[AnyAnswerInbox]):
    """A request that awaits its answer, and where the answer goes; one for all masters, so it does not change."""

    request: Send
    inbox: AnyAnswerInbox
    at: float
    text: bool = False  # to be sent as text, because the master had forgotten the script
    pause: float = 0.0  # of a release that was asked again, for a `Doubt` or want of rights: how long that was put off


def _with_text(request: Send) -> Send:
    """What to send with the text of the script that ``request`` needs.

    An acquire whose attempt is over must not be revived behind its release, and neither must a repair.  Their text
    is sent all the same, for no names: a master that always answers last would never get it.
    """
    creates = request.call.script in (scripts.ACQUIRE, scripts.REPAIR)
    wanted = request.open or (request.only_if is not None and request.only_if())
    return Send(wire.nothing(request.call.script)) if creates and not wanted else request


class Pipeline(Generic[AnyAnswerInbox]):
    """The order of one connection, and what is owed to its master when that connection breaks.

    ``patience``: a master that has not answered for so many seconds is sent nothing new, so that a
    frozen one does not pile up requests that nobody waits for.  Releases are still sent: they are
    few, as they concern only what was sent before it froze.
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
        """Queue ``queued``; the driver writes it.  A `Failure`: it must not be written."""
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
        """Owe it, if it is a release that may still find its key."""
        owed_until = queued.request.owed_until
        if owed_until is not None and owed_until > queued.at:
            self._owed.append(queued)
            if len(self._owed) > self._sweep_from:  # or a long outage would fill the memory with them
                self._forgive(queued.at)

    def recognised(self, data: bytes, at: float) -> int:
        """How many bytes at the beginning of ``data`` are usual answers (`Call.usual`), which are counted now.

        What follows them is to be parsed.  No whole value of the protocol begins like another one, so what begins
        like an answer is one.
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
        """The next answer came.  Its request counts it, unless that is decided; whoever waits is told when it is.

        What the request leaves in `Send.more` stands behind all that was written until now, and in front of all that will be.

        True: `more` and `in_debt` may say what is to be done about it.

        Raises:
            ConnectionAbortedError: nothing was asked, so whatever this connection carries cannot be trusted.
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
        request.more = (
            _NOTHING  # what another master was to be asked is not left here, though a Ctrl-C came before it was
        )
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
        """Later, and each time later than that."""
        pause = min(2 * queued.pause or _FIRST_PAUSE * self.patience, _LONGEST_PAUSE * self.patience)
        self._owed.append(QueuedRequest(queued.request, queued.inbox, at + pause, pause=pause))

    def _refused(self, queued: QueuedRequest[AnyAnswerInbox], error: ErrorReply, at: float) -> None:
        """A master that forgot its scripts is given the text once."""
        request = queued.request
        if error.code == "NOSCRIPT" and not queued.text:
            again = QueuedRequest(_with_text(request), queued.inbox, at, text=True, pause=queued.pause)
            self._under_way.append(again)
            self._more.append(again)
            return
        if request.owed_until is not None:
            if error.passing:
                self._owed.append(queued)
            elif (
                error.code == "NOPERM" and len(self._owed) < _SWEEP_FROM
            ):  # it may be given the rights, and mostly is not
                self._ask_again(queued, at)
        if request.open and request.failed(self.master, error.failure(), at):
            queued.inbox.put(request)

    def _follow(self, request: Send, inbox: AnyAnswerInbox, at: float) -> None:
        """Queue what its answer asks for, where that is still wanted."""
        for one in request.more:
            if one.only_if is None or one.only_if():
                one.sent_at = at
                queued = QueuedRequest(one, inbox, at)
                self._under_way.append(queued)
                self._more.append(queued)

    def more(self) -> list[QueuedRequest[AnyAnswerInbox]]:
        """What is to be written because of answers.  It stands in the queue, at its end, already."""
        more, self._more = self._more, []
        return more

    def broken(self, failure: Failure, at: float) -> None:
        """The connection is gone: what was under way fails.  Releases among it are owed from now on."""
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
        """A new connection is made and its handshake done; `due` says what to write first."""
        self.down = None

    def due(self, at: float) -> list[QueuedRequest[AnyAnswerInbox]]:
        """Owed releases to write now, in their order.  Those whose keys must have expired are dropped."""
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
        """Drop debts whose keys must have expired."""
        self._owed = [queued for queued in self._owed if (queued.request.owed_until or at) > at]
        self._sweep_from = max(_SWEEP_FROM, 2 * len(self._owed))

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
        return bool(self._owed) or any(queued.request.owed_until is not None for queued in self._under_way)
