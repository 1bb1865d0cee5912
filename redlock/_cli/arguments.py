"""What both commands take on the command line, and how they complain of it."""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from redlock import RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import SupportsWrite

_LONGEST = 1e9  # seconds, as for `Masters`: beyond it the operating system's timers overflow
FAILED = 71  # EX_OSERR of sysexits.h: what it has for errors of a program, 70, is "lost" here
# Open files: two connections to each master, and while they are made one more for each, of TLS or the resolver; what Python
# opens meanwhile, and at its end: without room for that it aborts.
_FILES_EACH, _FILES_ELSE = 4, 8
# What may be shown of what stands before an @.
_HARMLESS = re.compile(r"'?(--[\w-]+=)?([a-z]+://)?")


class Parser(argparse.ArgumentParser):
    """One that ends with the exit code of its command, and in one line that says what to do."""

    def __init__(self, *, usage_error: int, **options: object) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # what is abbreviated today may mean two things tomorrow
            **options,  # type: ignore[arg-type]
        )
        self._usage_error = usage_error

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Argparse says nothing of what it could not write, and that would be success."""
        if file is not None:
            super().print_help(file)
            return
        sys.stdout.write(self.format_help())
        sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        """What was given is quoted, and may be an address with a password in the wrong place."""
        complain(f"{self.prog}: {_masked(message)}\nTry: {self.prog} --help")
        self.exit(self._usage_error)


def complain(text: str) -> None:
    """On standard error, in one piece.  If nobody can be told, the exit code has to do."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _masked(message: str) -> str:
    what, colon, given = message.partition(": ")  # words of argparse alone come before that
    return what + colon + masked(given)


def masked(given: str) -> str:
    """A password may have blanks, colons and @ in it: so all up to the last one is taken for one."""
    secret, at, rest = given.rpartition("@")
    harmless = _HARMLESS.match(secret)
    if at and harmless:
        given = f"{harmless[0]}***@{rest}"
    return re.sub("password=.*", "password=***", given, flags=re.DOTALL)


def add_deployment(parser: Parser) -> None:
    """The options that say which masters, and on which terms (C21)."""
    group = parser.add_argument_group("the deployment")
    group.add_argument(
        "--config", metavar="FILE", help="TOML file with the masters, credentials, TLS files and these options"
    )
    group.add_argument("--prefix", type=_text, metavar="TEXT", help="of every key (default: redlock:)")
    group.add_argument(
        "--max-ttl", type=seconds, metavar="SECONDS", help="the longest TTL of any client, the same in all of them"
    )
    group.add_argument(
        "--node-timeout", type=seconds, metavar="SECONDS", help="a master's share of an attempt (default: 0.25)"
    )
    group.add_argument(
        "--no-restart-guard",
        action="store_true",
        help="let masters vote right after their start: for brand-new deployments, and for clients that do so",
    )


def _text(given: str) -> str:
    """Keys are UTF-8; an argument may be any bytes."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{given!r}: allowed is text in UTF-8") from None
    return given


SECONDS = f"a number of seconds, more than 0 and at most {_LONGEST:g}"


def can_be_set(number: float) -> bool:
    """Whether a clock can be set with so many seconds: those of `SECONDS`."""
    return 0 < number <= _LONGEST


def seconds(text: str) -> float:
    """A number of seconds above 0, with which a clock can be set."""
    return _seconds(text, can_be_set, SECONDS)


def seconds_or_none(text: str) -> float:
    """A finite number of seconds, 0 included."""
    return _seconds(text, lambda number: number >= 0, "a number of seconds, 0 or more")


def _seconds(text: str, allowed: Callable[[float], bool], what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and allowed(number)):
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is {what}")
    return number


def find_room(masters: int, what: str) -> None:
    """Else a master would be blamed for what this process is short of.  Raises `RedlockError`."""
    files = masters * _FILES_EACH + _FILES_ELSE
    found: list[int] = []
    try:
        while len(found) < files:
            found.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise RedlockError(
            f"there is room for {len(found)} more open files ({error.strerror}), and {what} on {masters} "
            f"master{'s' if masters > 1 else ''} takes {files}: raise the limit, with ulimit -n"
        ) from None
    finally:
        for number in found:
            os.close(number)


def entry(main: Callable[[list[str]], int], broken_pipe: int, failed: int = FAILED) -> NoReturn:
    """Run a command as the program: an exit code and at most a line, whatever happens, and no traceback."""
    _open_streams()
    code: int | str | None
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except SystemExit as ending:
        code = ending.code
    except KeyboardInterrupt:
        code = 130  # as shells say it of a program that ended by SIGINT
    except BrokenPipeError:
        code = broken_pipe
    except Exception as error:  # noqa: BLE001 - a 1 would mean something else
        complain(f"redlock-{Path(sys.argv[0]).stem.removeprefix('redlock-')}: {_explained(error)}")
        code = failed
    for number, stream in enumerate((sys.stdout, sys.stderr), 1):
        try:
            stream.flush()
        except OSError:  # what is still in the buffer would be complained of at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    sys.exit(code)


def _open_streams() -> None:
    """What whoever starts this has closed is /dev/null: else the next file or pipe would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # has this number, the lowest that is free
            os.set_inheritable(number, True)
    # What Python found closed is None.
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error


def print_utf_8() -> None:
    """For programs that read it, whatever the terminal understands."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _explained(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, RedlockError):  # a limit of the system: no thread, for example
        return str(error)
    import traceback  # noqa: PLC0415 - seldom needed

    # Its text may quote anything, passwords as well.
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}, a defect of this program: {place.filename}, line {place.lineno}"
