"""``redlock-chaos export HISTORY``: one lock as a register, for checkers of linearizability that others have written.

The lock is a register that holds the number of its holder, and 0 if there is none.  To get it is ``cas [0 n]``, from the
invocation to the answer; to let it go, or to lose it, is ``cas [n 0]`` in the moment from which on it is not held; a
lease that goes on in another process is ``cas [n n]``.  So the history of the register can be linearized exactly if no
two holds overlap.  Attempts that were not granted changed nothing, and are left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from .history import Unreadable, read
from .judge.holds import holds
from .judge.operations import operations

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from .history import History

_UNKNOWN: Final = 2
FORMATS: Final = {
    "porcupine": "INFO  jepsen.util - {process}\t:{type}\t:{f}\t{value}",  # the log of Jepsen that its tests read
    "knossos": "{{:process {process}, :type :{type}, :f :{f}, :value {value}}}",  # EDN, an operation in each line
}


class Line(NamedTuple):
    """``first``: of what happens at one time, an end comes before a beginning (C25)."""

    t: float
    first: int
    process: int
    type: str
    f: str
    value: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write one lock of a recorded history as a register, for Porcupine or Knossos, to the standard output."
    )
    parser.add_argument("history", metavar="HISTORY", help="a history.jsonl")
    parser.add_argument("--lock", metavar="NAME", help="which one; the first of the header unless given")
    parser.add_argument("--format", choices=tuple(FORMATS), default="porcupine", help="porcupine unless given")


def main(args: argparse.Namespace) -> int:
    try:
        for line in exported(read(args.history), args.lock, args.format):
            print(line)
    except Unreadable as error:
        print(f"UNKNOWN: {error}", file=sys.stderr)
        return _UNKNOWN
    return 0


def exported(history: History, lock: str | None, form: str) -> Iterator[str]:
    """``lock`` None: the first one.

    Raises:
        Unreadable: there is no such lock; or readers share it, so it is no register.
    """
    lock = next(iter(history.header.locks), "") if lock is None else lock
    if lock not in history.header.locks:
        raise Unreadable(f"--lock is {lock!r}, the history has {', '.join(history.header.locks) or 'none'}")
    for line in sorted(_lines(history, lock)):
        yield FORMATS[form].format(**line._asdict())


def _lines(history: History, lock: str) -> Iterator[Line]:
    begun = {one.end.line: one.began for one in operations(history, "acquire") if one.end is not None}
    numbers: dict[str, int] = {}
    yield from _operation(float("-inf"), float("-inf"), 0, "write", "0")
    for hold in holds(history):
        if hold.lock != lock or hold.end <= hold.start:
            continue
        if hold.shared_from < hold.end:
            raise Unreadable(f"line {hold.began.line}: readers share {lock!r}, so it is no register")
        n = numbers.setdefault(hold.token, len(numbers) + 1)
        goes_on = hold.began.op == "resume"
        began = hold.start if goes_on else begun.get(hold.began.line, hold.start)
        yield from _operation(began, hold.start, n, "cas", f"[{n if goes_on else 0} {n}]")
        if hold.end <= history.end and not (hold.passed_on is not None and hold.passed_on.op == "resume"):
            yield from _operation(hold.end, hold.end, n, "cas", f"[{n} 0]", first=0)


def _operation(began: float, ended: float, n: int, f: str, value: str, *, first: int = 2) -> Iterator[Line]:
    yield Line(began, first, n, "invoke", f, value)
    yield Line(ended, first + 1, n, "ok", f, value)
