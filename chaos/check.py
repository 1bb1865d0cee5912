"""``redlock-chaos check HISTORY``: judges what was recorded, by whomever."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final

from . import report, second
from .history import DEMANDABLE, Unreadable, demanded, read
from .judge import judge, steps
from .summary import summarize

if TYPE_CHECKING:
    import argparse

    from .history import History, Must

_UNKNOWN: Final = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Judge a recorded history.  Exit 0: all that must hold does; 1: it does not, and the offending events "
        "are printed; 2: unknown, as the file cannot be read, is cut short or proves nothing."
    )
    parser.add_argument("history", metavar="HISTORY", help="a history.jsonl (docs/chaos-history.md has the format)")
    parser.add_argument(
        "--must",
        metavar="LIST",
        help=f"what must hold, instead of what the history says: comma-separated, of {', '.join(DEMANDABLE)}",
    )
    parser.add_argument(
        "--steps",
        action="store_true",
        help="instead of promises: whether each recorded step is one of the specification",
    )
    parser.add_argument(
        "--second",
        action="store_true",
        help="instead of all promises: whether two ever held a lock, by a judge that shares no code with the first one",
    )
    parser.add_argument("--json", action="store_true", help="print verdict.json instead of text")
    parser.add_argument(
        "--out", type=report.directory, metavar="DIR", help="write verdict.json and timeline.html into DIR"
    )


def main(args: argparse.Namespace) -> int:
    try:
        history = read(args.history)
        must = history.header.must if args.must is None else demanded(args.must.split(","))
    except Unreadable as error:
        print(f"UNKNOWN: {error}", file=sys.stderr)
        return _UNKNOWN
    if args.steps:
        found = steps(history)
        _print(report.of_steps(found))
        return found.exit_code
    if args.second:
        return _second(args.history)
    if not must:
        print("UNKNOWN: 'must' of its header is empty, so nothing has to hold: say what, with --must", file=sys.stderr)
        return _UNKNOWN
    return _judged(history, must, args)


def _second(path: str) -> int:
    verdicts = second.verdicts(path)
    wrong = {lock: one for lock, one in verdicts.items() if one is not None}
    for lock, one in wrong.items():
        _print(
            f"VIOLATED: {lock!r}: no order of what was done has room for token {one.token}, answered at t={one.answered:.6f}\n"
        )
    if not verdicts:
        print("UNKNOWN: no lock was ever held, so this history proves nothing", file=sys.stderr)
        return _UNKNOWN
    _print(f"{len(verdicts)} locks, {len(wrong)} of them held by two at once\n")
    return int(bool(wrong))


def _judged(history: History, must: tuple[Must, ...], args: argparse.Namespace) -> int:
    verdict = judge(history, must)
    summary = summarize(history, verdict)
    if args.json:
        shown = json.dumps(report.document(history, verdict, summary), indent=1) + "\n"
    else:
        shown = report.text(history, verdict, summary)
    _print(shown)
    if args.out is not None:
        try:
            report.write(args.out, history, verdict, summary)
        except OSError as error:
            print(f"UNKNOWN: cannot write into {args.out}: {error.strerror or error}", file=sys.stderr)
            return _UNKNOWN
    return verdict.exit_code


def _print(shown: str) -> None:
    """The reader may have gone, as ``head`` does: that changes no verdict."""
    try:
        sys.stdout.write(shown)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at its exit, and must not complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
