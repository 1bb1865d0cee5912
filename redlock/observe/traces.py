"""Spans through the API of OpenTelemetry. Needs the extra ``otel``, and an SDK that the application chooses."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from redlock import LeaseExtended, LeaseLost, LockAcquired, LockRefused, LockReleased
from redlock.observe._opentelemetry import server, version

try:
    from opentelemetry import trace
    from opentelemetry.trace import Link, SpanKind, StatusCode
except ImportError as error:
    raise ImportError(
        "redlock.observe.traces needs opentelemetry-api: pip install opentelemetry-api", name="opentelemetry"
    ) from error

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

    from redlock import Event, Vote

__all__ = ["TraceObserver"]

_EARLY = 100  # the most leases that are remembered because they had ended before we learned of them


class TraceObserver:
    """Makes spans with the tracer ``redlock``. Make it once; it serves any number of `Masters` and `AsyncMasters`.

    - ``redlock.acquire``: from the call of `acquire` to its answer. A child of the span that is current there. Its
      events are ``redlock.attempt``, the latest 17 of them, and behind each one ``redlock.vote`` for each master. It is
      an error if the ``redlock.outcome`` is ``unreachable``, ``slow`` or ``unusable``; ``held`` is none.
    - ``redlock.held``: from the grant to the release or the loss. A child of the same span, with a link to
      ``redlock.acquire``. An event ``redlock.renewed`` is a renewal in the background. A loss is an event
      ``redlock.lost``, and an error.
    - ``redlock.extend``: a call of `extend` that succeeded. A child of the span that is current there, with a link to
      ``redlock.held``.

    All have the attribute ``redlock.lock``, the name. Those with a lease have ``redlock.owner`` and ``redlock.fence``.
    Votes have ``redlock.outcome``, ``server.address``, ``server.port``, ``redlock.latency`` in seconds and
    ``redlock.reason``, as far as known.

    An acquire that is cancelled or that raises before it asked masters has no span, and neither has a re-entry. A lease
    that was resumed by its token has its span when it ends. One that is held when its `Masters` are closed has none.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """``tracer_provider``: where the tracer comes from. None: the global provider, even if it is set later."""
        self._tracer = trace.get_tracer("redlock", version(), tracer_provider)
        self._held: dict[str, tuple[Span, int]] = {}  # by token: the span, and when it began
        self._early: deque[str] = deque(maxlen=_EARLY)

    def __call__(self, event: Event) -> None:
        """Called where the event happens. The event of an acquire or an extend comes in its caller's thread or task."""
        match event:
            case LockAcquired():
                self._acquired(event)
            case LockRefused():
                self._tried(event, event.kind, {"redlock.lock": event.name})
            case LeaseExtended(renewed=True):
                if event.token in self._held:
                    self._held[event.token][0].add_event("redlock.renewed", {"redlock.remaining": event.remaining})
            case LeaseExtended():
                self._extended(event)
            case LockReleased():
                self._ended(event)
            case LeaseLost():
                self._ended(event, event.reason)

    def _acquired(self, event: LockAcquired) -> None:
        span = self._tried(event, "acquired", _of(event))
        if event.token in self._early:
            return  # its loss was reported first, by another thread: it has had its span
        now = time.time_ns()
        # Its parent is the current span, and not `span`, which has ended.
        held = self._tracer.start_span(
            "redlock.held", attributes=_of(event), links=[Link(span.get_span_context())], start_time=now
        )
        self._held[event.token] = held, now

    def _tried(self, event: LockAcquired | LockRefused, outcome: str, attributes: dict[str, str | int]) -> Span:
        now = time.time_ns()
        began = now - _ns(event.seconds)
        span = self._tracer.start_span(
            "redlock.acquire",
            kind=SpanKind.CLIENT,
            attributes={**attributes, "redlock.outcome": outcome, "redlock.attempts": event.attempts},
            start_time=began,
        )
        if span.is_recording():
            for number, failed in enumerate(event.failed, event.attempts - len(event.failed)):
                _attempt(span, number, failed.kind, failed.votes, began + _ns(failed.seconds))
            if event.attempts:  # 0: it only stood in line in this process, and asked no master
                _attempt(span, event.attempts, outcome, event.votes, now)
        if outcome not in ("acquired", "held"):
            span.set_status(StatusCode.ERROR, outcome)
        span.end(now)
        return span

    def _extended(self, event: LeaseExtended) -> None:
        now = time.time_ns()
        took = max((vote.latency or 0.0 for vote in event.votes), default=0.0)
        held = self._held.get(event.token)
        span = self._tracer.start_span(
            "redlock.extend",
            kind=SpanKind.CLIENT,
            attributes={**_of(event), "redlock.remaining": event.remaining},
            links=[Link(held[0].get_span_context())] if held is not None else None,
            start_time=now - _ns(took),
        )
        _votes(span, event.votes, now)
        span.end(now)

    def _ended(self, event: LockReleased | LeaseLost, reason: str = "") -> None:
        span, began = self._held.pop(event.token, (None, 0))
        if span is None:  # resumed by its token; or it has ended, and its event is yet to come
            self._early.append(event.token)
            began = time.time_ns() - _ns(event.held)
            span = self._tracer.start_span("redlock.held", attributes=_of(event), start_time=began)
        end = began + _ns(event.held)  # a loss may be reported late: the end was at `valid_until`
        if reason:
            span.add_event("redlock.lost", {"redlock.reason": reason}, end)
            span.set_status(StatusCode.ERROR, f"lost: {reason}")
        span.end(end)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _of(lease: LockAcquired | LeaseExtended | LockReleased | LeaseLost) -> dict[str, str | int]:
    found: dict[str, str | int] = {"redlock.lock": lease.name}
    if lease.owner:
        found["redlock.owner"] = lease.owner
    if lease.fence is not None:
        found["redlock.fence"] = lease.fence
    return found


def _attempt(span: Span, number: int, outcome: str, votes: tuple[Vote, ...], at: int) -> None:
    span.add_event("redlock.attempt", {"redlock.attempt": number, "redlock.outcome": outcome}, at)
    _votes(span, votes, at)


def _votes(span: Span, votes: tuple[Vote, ...], at: int) -> None:
    """``at``: when the round was decided; the latency of each says when it came."""
    for vote in votes:
        attributes: dict[str, str | int | float] = {**server(vote.master), "redlock.outcome": vote.outcome}
        if vote.latency is not None:
            attributes["redlock.latency"] = vote.latency
        if vote.reason:
            attributes["redlock.reason"] = vote.reason
        span.add_event("redlock.vote", attributes, at)
