"""The requests under way on the one connection to one master (R10).

Requests leave in order, and their answers come back in that order, so a queue is enough to know which request an answer
belongs to.  This file is that queue: the connection reports what happened, and asks what to do.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from redlock import scripts
from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.outcomes import NEVER, ErrorReply, Failure

if TYPE_CHECKING:
    from collections.abc import Callable

# Of the patience: pauses until a release that is in doubt, or not permitted, is sent again; each is twice the last one.
_FIRST_PAUSE, _LONGEST_PAUSE = 1 / 4, 8
_SWEEP_FROM = 64  # owed releases; with more, those that have expired are dropped
_IDLE = 0.5  # seconds without an answer; a server or proxy that closes idle connections counts in seconds

_NOTHING: tuple[Send, ...] = ()  # for `Send.more`

CONNECTING = Failure("error", "still connecting", sent=False)
FORKED = Failure("error", "the connection belongs to the process that forked this one", sent=False)


@dataclass(slots=True, eq=False)
class SentAgain:
    """A request that one master is sent again; else the `Send` itself is in the queue.  Its answer is parsed."""

    request: Send
    sent_at: float  # or the time at which to send it
    text: bool = False  # send the text of the script, because the master had forgotten it
    pause: float = 0.0  # the last pause of a release that is sent again, for a doubt or for want of rights

    usual: ClassVar[tuple[()]] = ()


Queued: TypeAlias = "Send | SentAgain"


def request_of(queued: Queued) -> Send:
    return queued.request if isinstance(queued, SentAgain) else queued


def _again(queued: Queued) -> SentAgain:
    return queued if isinstance(queued, SentAgain) else SentAgain(queued, queued.sent_at)


def _down(_: Any) -> Any:
    raise ConnectionAbortedError("not connected")


# Requests that must not be sent again after later ones: they set a key, a ticket or a mark, or a shorter time.
_SETS = ("acquire", "extend", "mark", "occupy", "renew", "confirm", "repair", "ticket")
IN_ORDER = frozenset(script.name for script in scripts.ALL if script.verb in _SETS)

# A master would refuse the second of two equal ones: it is not greater than the fence (R18), stamp or ticket there.
_GREATER = (scripts.FENCE, scripts.CONFIRM, scripts.CONFIRM_SHARED, scripts.TICKET)
_ONCE = frozenset(script.name for script in (*_GREATER, scripts.EXTEND_RECORDED, scripts.RENEW_RECORDED))


def _wanted(request: Send) -> bool:
    """Whether ``request`` may be sent again, behind all that was sent since."""
    return request.open if request.only_if is None else request.only_if()


def _with_text(request: Send) -> Send:
    """``request``, or a call for no names that brings the text of its script, if it must not be sent again (R12)."""
    alone = request.call.script.name in IN_ORDER and request.owed_until is None and not _wanted(request)
    return Send(wire.nothing(request.call.script)) if alone else request


class Pipeline:
    """The queue of one connection, and the releases that are owed to its master when the connection breaks.

    A connection that was idle may have been dead for long, although the master is well: so it fails no request when it
    breaks (R10).  Its requests, and new ones, wait for the next connection, once; if there is none, all fail.  The
    scripts grant a token once more that has the key already, so a master may carry them out twice without harm.

    ``plain``: nothing about the connection is unusual, so `_core/exchange.py` may use ``send`` and ``recv``.
    ``functions``: the master is asked by functions, not by scripts (R44); the handshake finds that out.
    ``odd``: most other masters are asked in the other way, so what is packed for all is not for this one.
    ``patience``: a master that has not answered for that many seconds is sent releases alone, so that a frozen master
    does not pile up requests whose callers are gone.
    """

    __slots__ = (
        "_more", "_owed", "_sweep_from", "_waiting", "down", "expected", "functions", "heard_at", "master", "odd",
        "patience", "plain", "recv", "send", "under_way",
    )  # fmt: skip

    def __init__(self, master: int, patience: float) -> None:
        self.master = master
        self.patience = patience
        self.down: Failure | None = CONNECTING  # None: connected
        self.expected = False  # down, and open requests wait for the new connection
        self.heard_at = NEVER  # the latest answer of this connection, or its handshake
        self.plain = self.odd = self.functions = False
        self.send: Callable[[bytes], int] = _down
        self.recv: Callable[[int], bytes] = _down
        self.under_way: deque[Any] = deque()  # of `Queued`
        self._owed: list[SentAgain] = []
        self._more: list[Queued] = []
        self._waiting: list[tuple[Send, bool]] = []  # requests for the new connection, and whether the old one had them
        self._sweep_from = _SWEEP_FROM

    def words(self, call: wire.Call) -> tuple[str, ...]:
        """The command for ``call``, as this master is asked."""
        return call.words_as_function if self.functions else call.words

    def submit(self, request: Send, at: float) -> bool:
        """Put ``request`` into the queue.  True: the connection is to write it.  Else it waits, or fails."""
        if self.down is not None:
            self._postpone(SentAgain(request, at))
            if self.expected and request.open:
                self._waiting.append((request, False))
            else:
                self._fail(request, self.down, at)
            return False
        if request.owed_until is None and self.overdue(at):
            silence = at - self.under_way[0].sent_at
            self._fail(request, Failure("timeout", f"no answer for {silence:.3g} s, so not asked", sent=False), at)
            return False
        self.under_way.append(request)
        return True

    def _fail(self, request: Send, failure: Failure, at: float) -> None:
        """``request`` fails on this master, for ``failure``; its inbox is notified if that decides."""
        if request.open and request.failed(self.master, failure, at):
            request.inbox.put(request)

    def overdue(self, at: float) -> bool:
        """Whether the master has been silent for longer than ``patience``."""
        return bool(self.under_way) and at - self.under_way[0].sent_at > self.patience

    @property
    def waits_since(self) -> float:
        """Since when the master has owed an answer without giving any; infinity: it owes none."""
        try:
            sent_at: float = self.under_way[0].sent_at
        except IndexError:
            return math.inf
        return max(sent_at, self.heard_at)

    def trouble(self, at: float) -> str:
        """What is wrong with the connection; empty: nothing that is known.  Any thread may ask."""
        if self.down is not None:
            return "" if self.down is CONNECTING else self.down.reason
        silence = at - self.waits_since
        return f"no answer for {silence:.3g} s" if silence > self.patience else ""

    def _postpone(self, queued: SentAgain) -> None:
        """Owe ``queued`` to the master, if it is a release that may still find its key."""
        owed_until = queued.request.owed_until
        if owed_until is not None and owed_until > queued.sent_at:
            self._owed.append(queued)
            if len(self._owed) > self._sweep_from:  # a long outage must not fill the memory
                self._forgive(queued.sent_at)

    def answered(self, value: Any, at: float) -> bool:
        """The next answer came.  Its request counts it, unless that is decided, and notifies its inbox if it decides.

        Raises ConnectionAbortedError if nothing was asked, or something else: nothing on this connection can be
        trusted. True: the connection is to look at `more`, which go behind all that was written, and at `in_debt`.
        """
        try:
            queued = self.under_way.popleft()
        except IndexError:
            raise ConnectionAbortedError("it sent an answer without a request") from None
        self.heard_at = at
        request = request_of(queued)
        if type(value) is ErrorReply:
            self._refused(queued, request, value, at)
            return True
        # A Ctrl-C may have left requests for another master in here.
        request.more = _NOTHING
        if not request.open:
            request.late(self.master, value, at)
        else:
            try:
                decides = request.answered(self.master, value, at)
            except ConnectionAbortedError:
                self.under_way.appendleft(queued)  # it fails with all other requests
                raise
            if decides:
                request.inbox.put(request)
        if request.more:
            self._follow(request, at)
        if request.doubt is None or not request.doubt(self.master, value):
            return bool(self._more)
        self._ask_again(queued, at)
        return True

    def _ask_again(self, queued: Queued, at: float) -> None:
        """Owe the request again after a pause, twice as long as the last one."""
        last = queued.pause if isinstance(queued, SentAgain) else 0.0
        pause = min(2 * last or _FIRST_PAUSE * self.patience, _LONGEST_PAUSE * self.patience)
        self._owed.append(SentAgain(request_of(queued), at + pause, pause=pause))

    def _refused(self, queued: Queued, request: Send, error: ErrorReply, at: float) -> None:
        """A master answered an error.  If it forgot the script, it gets the text, once."""
        again = _again(queued)
        if error.code == "NOSCRIPT" and not again.text:
            with_text = SentAgain(_with_text(request), at, text=True, pause=again.pause)
            self.under_way.append(with_text)
            self._more.append(with_text)
            if with_text.request is request:
                return
        if error.withdrawn:
            # Nothing was done, and the next connection finds out how to ask (R44): what is open waits for that one.
            self.under_way.appendleft(queued)
            self.heard_at = NEVER
            raise ConnectionAbortedError(error.failure().reason)
        if request.owed_until is not None:
            if error.passing:
                self._owed.append(again)
            elif error.code == "NOPERM" and len(self._owed) < _SWEEP_FROM:
                # The right may be granted soon.  Mostly it is not, so only the first releases are sent again.
                self._ask_again(queued, at)
        self._fail(request, error.failure(), at)
        if error.code == "READONLY":  # it gets other data: what it has then, the next connection asks first (R21)
            raise ConnectionAbortedError("it is a replica")

    def _follow(self, request: Send, at: float) -> None:
        """Queue the requests that an answer asks for, if they are still wanted."""
        for one in request.more:
            if one.only_if is None or one.only_if():
                one.sent_at, one.inbox = at, request.inbox
                self.under_way.append(one)
                self._more.append(one)

    def more(self) -> list[Queued]:
        """The requests to write because of answers.  They are in the queue already, at its end."""
        more, self._more = self._more, []
        return more

    def broken(self, failure: Failure, at: float, *, for_good: bool = False) -> None:
        """The connection is gone: releases are owed, all else fails, or waits for a new one, if not ``for_good``."""
        asked_at = self.under_way[0].sent_at if self.under_way else at
        self.expected = not for_good and asked_at - self.heard_at > _IDLE
        self.down = Failure(failure.outcome, failure.reason, sent=False, configuration=failure.configuration)
        failed = list(self.under_way)
        self.under_way.clear()
        self.more()
        self._owed += [_again(queued) for queued in failed if (request_of(queued).owed_until or at) > at]
        for queued in failed:
            request = request_of(queued)
            if self.expected and request.open and request.call.script.name not in _ONCE:
                self._waiting.append((request, True))
            else:
                self._fail(request, failure, at)

    def unreachable(self, failure: Failure, at: float) -> None:
        """No new connection could be made, so nothing waits for one any more."""
        self.down, self.expected = failure, False
        waiting, self._waiting = self._waiting, []
        for request, sent in waiting:
            self._fail(request, failure._replace(sent=sent), at)

    def disown(self) -> None:
        """In a forked child: what was asked and what is owed is the parent's."""
        self.down, self.plain, self.expected = FORKED, False, False
        self.send, self.recv = _down, _down
        self.under_way.clear()
        self._owed.clear()
        self._more.clear()
        self._waiting.clear()

    def connected(self, at: float) -> None:
        """There is a new connection, and its handshake is done.  `due` says what to write first."""
        self.down, self.expected, self.heard_at = None, False, at

    def due(self, at: float) -> list[SentAgain]:
        """What to write now: owed releases in their order, then requests that have waited, if they are still wanted."""
        if not (self._owed or self._waiting):
            return []
        self._forgive(at)
        if self.down is not None:
            return []
        due = [SentAgain(owed.request, at, pause=owed.pause) for owed in self._owed if owed.sent_at <= at]
        self._owed = [owed for owed in self._owed if owed.sent_at > at]
        waiting, self._waiting = self._waiting, []
        due += [SentAgain(request, at) for request, _ in waiting if request.owed_until is None and _wanted(request)]
        self.under_way.extend(due)
        return due

    def _forgive(self, at: float) -> None:
        self._owed = [queued for queued in self._owed if (queued.request.owed_until or at) > at]
        self._sweep_from = max(_SWEEP_FROM, 2 * len(self._owed))

    @property
    def idle(self) -> bool:
        return not self.under_way and not self._owed

    @property
    def in_debt(self) -> bool:
        """Whether a release has to be written again, now or later; see `due`."""
        return bool(self._owed)

    @property
    def owes(self) -> bool:
        """Whether a release has not been answered yet."""
        return bool(self._owed) or any(request_of(queued).owed_until is not None for queued in self.under_way)
