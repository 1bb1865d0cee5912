"""Starts sessions and ends with them; judges what they have recorded, and says whether that was to be expected."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal, TypeAlias

from . import IN_WHEEL, report
from .history import Unreadable, read
from .judge import judge
from .session import HISTORY, SETTINGS
from .summary import summarize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .backends import Backend
    from .history import History, Must
    from .judge import Verdict
    from .scenarios import Shows
    from .settings import Settings
    from .summary import Summary

PASSED: Final = 0
VIOLATED: Final = 1
UNKNOWN: Final = 2

# How a run ended: what had to hold did; it did not; nobody knows; it was to show something, and did not.
Ending: TypeAlias = Literal["passed", "violated", "unknown", "proves nothing"]
EXIT_CODES: Final[dict[Ending, int]] = {
    "passed": PASSED, "violated": VIOLATED, "unknown": UNKNOWN, "proves nothing": UNKNOWN,
}  # fmt: skip

_ENDS_WITHIN: Final = 20.0


@dataclass(frozen=True, slots=True)
class Judged:
    """``note`` is for people: what was shown, or what is the matter."""

    ending: Ending
    note: str
    history: History
    verdict: Verdict
    summary: Summary


class SessionFailed(RuntimeError):  # noqa: N818 - named for what happened
    """It left no history that could be judged."""


@contextmanager
def session(
    settings: Settings, backend: Backend, out: Path, must: tuple[Must, ...], said: IO[str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A run in a process of its own, that ends with this block and with this process, whatever ends that.

    Its history says that ``must`` has to hold.  What it says goes to ``said``, or to where we say it.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / HISTORY).unlink(missing_ok=True)
    (out / SETTINGS).write_text(settings.dumps())
    # What is on the path already comes first: somebody's own lock, to be tried in the place of this one.  The wheel's
    # folder is not named: every interpreter has it, and on this path it would come before the standard library.
    home = None if IN_WHEEL else str(Path(__file__).parent.parent)
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), home)))
    # -P: not from the folder that somebody happens to be in, which may have a redis.py.
    command = [sys.executable, "-P", "-m", f"{__package__}.session", str(out.absolute()), backend.NAME, *must]
    reader, lifeline = os.pipe()
    try:
        process = subprocess.Popen(
            backend.command(["env", f"PYTHONPATH={path}", *command]),
            stdin=reader,
            stdout=said,
            stderr=subprocess.STDOUT if said is not None else None,
            # Ctrl-C is for us, and we close the pipe.
            start_new_session=True,
        )
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(reader)
    try:
        yield process
    finally:
        os.close(lifeline)
        try:
            process.wait(_ENDS_WITHIN)
        finally:
            process.kill()
            process.wait()


def judged(ended: subprocess.Popen[bytes], out: Path, must: tuple[Must, ...], shows: Shows | None = None) -> Judged:
    """The verdict on what the session that has ``ended`` left in ``out``; it is written there as well.

    Raises:
        SessionFailed: there is none.
    """
    if ended.returncode:
        raise SessionFailed(f"the session ended with status {ended.returncode}")
    try:
        history = read(out / HISTORY)
    except Unreadable as error:
        raise SessionFailed(str(error)) from None
    verdict = judge(history, must)
    summary = summarize(history, verdict)
    report.write(out, history, verdict, summary)
    ending: Ending = verdict.outcome
    note = verdict.why or ", ".join(_broken(verdict))
    if ending == "passed" and verdict.never_struck:
        note = f"never struck: {', '.join(verdict.never_struck)}"
    if shows is not None and ending == "passed":
        times = _shown(shows, verdict, summary)
        note = f"shows {shows} {times} times" if times else f"proves nothing: {shows} was not shown"
        ending = "passed" if times else "proves nothing"
    return Judged(ending, note, history, verdict, summary)


def _shown(shows: Shows, verdict: Verdict, summary: Summary) -> int:
    if shows == "lost update":
        return sum(store.lost_updates or 0 for store in summary.stores if store.store == "plain")
    return verdict[shows].count


def _broken(verdict: Verdict) -> list[str]:
    return [
        f"{ruling.name} {ruling.outcome}" + (f" {ruling.count} times" if ruling.count else "")
        for ruling in verdict.rulings if ruling.name in verdict.must and ruling.outcome != "passed"
    ]  # fmt: skip
