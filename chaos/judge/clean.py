"""P7: no key is left behind, neither for ever nor longer than its TTL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .violation import Violation, later, short, stamp, violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..history import Event, History, Key
    from .holds import Hold

# What PTTL says of a key without expiry, and of one that is not there any more.
_FOR_EVER: Final = -1
_GONE: Final = -2

# What can have set a key (C26).  A `resume` extends.  An acquire that failed, and says with which token, was
# under way until then.
_SETS: Final = frozenset(
    {
        ("acquire", "invoke"),
        ("acquire", "ok"),
        ("acquire", "fail"),
        ("acquire", "info"),
        ("extend", "ok"),
        ("resume", "ok"),
    }
)


def inspections(history: History) -> list[Event]:
    return [event for event in history.events if (event.op, event.phase) == ("inspect", "ok")]


def clean(history: History, held: Sequence[Hold]) -> Iterator[Violation]:
    """Without an inspection it holds trivially."""
    looks = inspections(history)
    wanted = {key.token for look in looks for key in look.keys}
    set_at: dict[str, list[Event]] = {}
    for event in history.events:
        if event.by_client and (event.op, event.phase) in _SETS and event.token in wanted:
            set_at.setdefault(event.token, []).append(event)
    of: dict[tuple[str, str], list[Hold]] = {}
    for hold in held:
        if hold.token in wanted:
            of.setdefault((hold.lock, hold.token), []).append(hold)
    for look in looks:
        for key in look.keys:
            alive = any(hold.alive(look.t) for hold in of.get((key.lock, key.token), ()))
            yield from _judge(key, look, history.header.ttl, _last(key, look, set_at), alive=alive)


def _last(key: Key, look: Event, set_at: dict[str, list[Event]]) -> Event | None:
    """The last event before ``look`` that can have set ``key``."""
    events = (e for e in reversed(set_at.get(key.token, ())) if e.t <= look.t and e.lock in (None, key.lock))
    return next(events, None)


def _judge(key: Key, look: Event, ttl: float, setter: Event | None, *, alive: bool) -> list[Violation]:
    look = replace(look, keys=(key,))  # the offending one: there may be thousands
    where = look.target[0] if look.target else "a master"
    what = f"at {stamp(look.t)} {where} had a key of {key.lock!r} ({short(key.token)})"
    if key.pttl_ms == _GONE:
        return []
    if key.pttl_ms is None or key.pttl_ms <= _FOR_EVER:
        return [violation(f"{what} that never expires", look.t, setter, look, lock=key.lock)]
    if alive:
        return []
    if setter is None:
        if key.pttl_ms <= ttl * 1000:
            return []
        return [
            violation(
                f"{what} that was not reported and that lives for {key.pttl_ms / 1000:g} s more, the TTL is {ttl:g} s",
                look.t,
                look,
                lock=key.lock,
            )
        ]
    if look.t <= later(setter.t, ttl):
        return []
    return [
        violation(
            f"{what} which was not held and which was set at {stamp(setter.t)} at the latest, "
            f"{look.t - setter.t:.3f} s before; the TTL is {ttl:g} s",
            look.t,
            setter,
            look,
            lock=key.lock,
        )
    ]
