"""``redlock-chaos check --second``: exclusive or not, by a judge that shares no code with the first one.

It reads the lines of a history itself, by docs/chaos-history.md alone, and asks what a checker of linearizability asks
(Wing and Gong, 1993): is there an order of all operations on a lock, each between its invocation and its answer, in
which nobody gets what another one has?  The search is Lowe's (2017), which goes from answer to answer with all states
that the lock may be in.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

_STRANGERS: Final = ("nemesis", "observer")
_FREE: Final = ((), frozenset[str]())


class Operation(NamedTuple):
    """``token`` gets the lock (``get``), or gets it as a reader (``read``), reads on (``share``), or has it no more (``end``)."""

    invoked: float
    answered: float
    what: str
    token: str


class _Span:
    """A token's time with a lock, in one process.  ``gone``: it was let go, or goes on in another span."""

    def __init__(self, asked: float, start: float, until: float, shared: float) -> None:
        self.asked, self.start, self.until, self.shared = asked, start, until, shared
        self.over = math.inf  # when it was let go, or its loss was told
        self.most = math.inf  # when the token was granted anew
        self.gone = self.resumed = False

    @property
    def end(self) -> float:
        return min(self.until, self.over, self.most)


_Spans: TypeAlias = "list[tuple[str, _Span]]"  # with the process of each


def verdicts(path: str | os.PathLike[str]) -> dict[str, Operation | None]:
    """Of each lock that was held: the operation that no order has room for, or None."""
    with Path(path).open(encoding="utf-8") as file:
        return judged(json.loads(line) for line in file)


def judged(lines: Iterable[dict[str, Any]]) -> dict[str, Operation | None]:
    return {lock: impossible(operations) for lock, operations in sorted(_read(lines).items())}


# -- what was done, by the lines ---------------------------------------------------------------------------


def _read(lines: Iterable[dict[str, Any]]) -> dict[str, list[Operation]]:
    reader = _Reader()
    for event in sorted((line for line in lines if "t" in line), key=lambda line: line["t"]):
        if event.get("process") not in _STRANGERS:
            reader.read(event)
    found: dict[str, list[Operation]] = defaultdict(list)
    for token, locks in reader.spans.items():
        for lock, mine in locks.items():
            found[lock] += (one for _, span in mine if span.end > span.start for one in _operations(token, span))
    return {lock: operations for lock, operations in found.items() if operations}


class _Reader:
    def __init__(self) -> None:
        self.spans: dict[str, dict[str, _Spans]] = defaultdict(dict)  # by token and lock, with the process
        self._asked: dict[tuple[object, ...], float] = {}

    def read(self, event: dict[str, Any]) -> None:
        op, phase, lock, token = event["op"], event["phase"], event.get("lock"), event.get("token", "")
        who, of = (op, event["process"], event.get("worker")), lock if op == "acquire" else token
        if phase == "invoke" and op in ("acquire", "extend", "resume"):
            self._asked[*who, of] = event["t"]
            return
        began = self._asked.pop((*who, of), None)
        if began is None and op == "acquire":  # a slot has a number once it is granted
            began = self._asked.pop((*who, str(lock).rpartition("#")[0]), None)
        does = getattr(self, f"_{op}_{phase}", None) if token else None
        if does is not None:
            locks = self.spans[token]
            for name in [lock] if lock else [*locks]:
                does(event, locks.setdefault(name, []), began)

    def _acquire_ok(self, event: dict[str, Any], mine: _Spans, began: float | None) -> None:
        t, resumed = event["t"], event["op"] == "resume"
        shared = math.inf if event.get("mode") != "shared" else t
        for _, before in mine:
            if not before.gone:
                before.gone, before.resumed = True, resumed
                shared = min(shared, max(before.shared, t))
                if resumed:
                    before.until = t
                else:
                    before.most = t
        mine.append(
            (event["process"], _Span(t if began is None or resumed else began, t, event["valid_until"], shared))
        )

    _resume_ok = _acquire_ok

    def _release_invoke(self, event: dict[str, Any], mine: _Spans, began: float | None) -> None:
        for _who, span in mine:
            if not span.gone:
                span.gone = True
                span.over = min(span.over, event["t"] if began is None else began)

    _resume_fail = _release_invoke

    def _downgrade_invoke(self, event: dict[str, Any], mine: _Spans, _: float | None) -> None:
        for _who, span in mine:
            if not span.gone:
                span.shared = min(span.shared, event["t"])

    def _extend_ok(self, event: dict[str, Any], mine: _Spans, began: float | None) -> None:
        last = _last(mine, event["process"]) or (mine[-1][1] if mine else None)
        if last is None:
            return
        t = event["t"]
        if began is not None and began > last.over:
            mine.append((event["process"], _Span(t, t, event["valid_until"], max(last.shared, t))))
        elif not last.resumed:
            last.until = event["valid_until"]

    def _lost_info(self, event: dict[str, Any], mine: _Spans, _: float | None) -> None:
        last = _last(mine, event["process"])
        if last is not None:
            last.over = min(last.over, event["t"])


def _last(mine: _Spans, process: str) -> _Span | None:
    return next((span for by, span in reversed(mine) if by == process), None)


def _operations(token: str, span: _Span) -> Iterator[Operation]:
    yield Operation(span.asked, span.start, "get" if span.shared > span.start else "read", token)
    if span.start < span.shared < span.end:
        yield Operation(span.shared, span.shared, "share", token)
    yield Operation(span.end, span.end, "end", token)


# -- the search --------------------------------------------------------------------------------------------


def impossible(operations: Iterable[Operation]) -> Operation | None:
    """The first operation by whose answer no order is left; None: there is one.

    A state is who has the lock, and which operations have taken effect before their answers.
    """
    steps: list[tuple[float, int, Operation]] = []
    for one in operations:
        late = 2 * (one.what in ("get", "read"))  # of what happens at one time, an end comes before a beginning
        steps += [(one.invoked, late, one), (one.answered, late + 1, one)]
    steps.sort(key=lambda step: step[:2])
    pending: set[Operation] = set()
    states: set[tuple[tuple[str, ...], frozenset[Any]]] = {_FREE}
    for _, which, one in steps:
        if which % 2 == 0:
            pending.add(one)
            continue
        pending.discard(one)
        done = {(had, early - {one}) for had, early in states if one in early}
        seen, waits = set(states), [state for state in states if one not in state[1]]
        while waits:
            had, early = waits.pop()
            if (has := _after(had, one)) is not None:
                done.add((has, early))
            for other in pending - early:
                has = _after(had, other)
                if has is not None and (state := (has, early | {other})) not in seen:
                    seen.add(state)
                    waits.append(state)
        if not done:
            return one
        states = done
    return None


def _after(had: tuple[str, ...], one: Operation) -> tuple[str, ...] | None:
    """Who has it: one with ``!``, or readers.  None: it cannot be."""
    alone = f"!{one.token}"
    if one.what == "get":
        return None if had else (alone,)
    if one.what == "read":
        return None if had and had[0].startswith("!") else tuple(sorted((*had, one.token)))
    if one.what == "share":
        return (one.token,) if had == (alone,) else None
    if had == (alone,):
        return ()
    return tuple(token for token in had if token != one.token) if one.token in had else None
