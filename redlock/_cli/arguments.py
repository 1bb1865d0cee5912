"""The arguments that both commands share, and how they report errors."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
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

_LONGEST = 1e9  # seconds, as for `Masters`: with more, timers of the operating system overflow
FAILED = 71  # EX_OSERR of sysexits.h. Its code for errors of a program, 70, means "lost" here
# Open files. Each master takes two connections, and one more file per connection while TLS or the resolver is busy.
# Python opens a few more, also at its end: without room for those it aborts.
_FILES_EACH, _FILES_ELSE = 4, 8
_LONGEST_SHOWN, _END_SHOWN = 200, 100  # characters of what was given that an error shows
# The only text before an @ that may be shown.
_HARMLESS = re.compile(r"'?(--[\w-]+=)?([a-z]+://)?")


class Parser(argparse.ArgumentParser):
    """An argument parser. An error ends with the exit code of the command, and the text says what to do."""

    def __init__(self, *, usage_error: int, **options: object) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # a new option could make today's abbreviation ambiguous
            **options,  # type: ignore[arg-type]
        )
        self._usage_error = usage_error

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Raise if the help cannot be written. Argparse would ignore that, and the exit code would be 0."""
        if file is not None:
            super().print_help(file)
            return
        sys.stdout.write(self.format_help())
        sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        """Report a wrong argument. Its quoted text is masked: it may be an address with a password."""
        complain(f"{self.prog}: {_masked(message)}\nTry: {self.prog} --help")
        self.exit(self._usage_error)


def complain(text: str) -> None:
    """Write ``text`` to standard error, in one piece. If that fails, only the exit code shows the error."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def in_options(text: str) -> str:
    """``text`` of the library in the words of the commands, which have another one for this option."""
    return text.replace("outage_timeout is", "--outage-timeout is")


def _masked(message: str) -> str:
    what, colon, given = message.partition(": ")  # before the colon are only words of argparse
    return what + colon + shortened(masked(given))


def shortened(given: str) -> str:
    """``given`` without its middle, if it is too long for a line. The allowed values come at the end."""
    return given if len(given) <= _LONGEST_SHOWN else f"{given[:_LONGEST_SHOWN]}…{given[-_END_SHOWN:]}"


def masked(given: str) -> str:
    """``given`` without passwords. A password may contain blanks, colons and @: all up to the last @ is hidden."""
    secret, at, rest = given.rpartition("@")
    harmless = _HARMLESS.match(secret)
    if at and harmless:
        given = f"{harmless[0]}***@{rest}"
    return re.sub("password=.*", "password=***", given, flags=re.DOTALL)


def add_deployment(parser: Parser) -> None:
    """Add the options that describe the masters and how to use them (C21)."""
    group = parser.add_argument_group("the deployment")
    group.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file with what all programs share: masters, credentials, TLS files and options of the deployment",
    )
    group.add_argument("--prefix", type=_text, metavar="TEXT", help="prefix of every key (default: redlock:)")
    group.add_argument(
        "--max-ttl", type=seconds, metavar="SECONDS", help="the longest TTL of any client, the same in all of them"
    )
    group.add_argument(
        "--node-timeout", type=seconds, metavar="SECONDS", help="a master's share of an attempt (default: 0.25)"
    )
    group.add_argument(
        "--no-restart-guard",
        action="store_true",
        help="let masters vote right after their start: for brand-new deployments, and where the clients do so",
    )
    group.add_argument(
        "--confirm-expiry",
        action="store_true",
        help="give away the lock of a vanished holder only when the clocks of several masters agree that its TTL has "
        "passed; "
        "the same in all clients",
    )


def _text(given: str) -> str:
    """``given``, if it can be a key. Keys are UTF-8; an argument may be any bytes."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{given!r}: allowed is text in UTF-8") from None
    return given


SECONDS = f"a number of seconds, more than 0 and at most {_LONGEST:g}"


def can_be_set(number: float) -> bool:
    """Whether a timer can be set to ``number`` seconds. `SECONDS` says the range in words."""
    return 0 < number <= _LONGEST


def seconds(text: str) -> float:
    """A number of seconds above 0 to which a timer can be set."""
    return _seconds(text, can_be_set, SECONDS)


def seconds_or_inf(text: str) -> float:
    """A number of seconds above 0 to which a timer can be set, or infinity."""
    return math.inf if text == "inf" else _seconds(text, can_be_set, f"{SECONDS}, or inf")


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


def find_room(masters: int, what: str, besides: int = 0) -> None:
    """Raise `RedlockError` if this process may not open enough files. Else the error would blame a master."""
    files = masters * _FILES_EACH + _FILES_ELSE + besides
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


def entry(main: Callable[[list[str]], int], failed: int = FAILED) -> NoReturn:
    """Run ``main`` as a program. Every failure becomes an exit code and at most one line, never a traceback."""
    _open_streams()
    logging.getLogger("redlock").addHandler(
        logging.NullHandler()
    )  # the commands say in their own words what users need
    code: int | str | None
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except SystemExit as ending:
        code = ending.code
    except KeyboardInterrupt:
        code = 130  # shells report this for a program that SIGINT ended
    except BrokenPipeError:  # the reader has gone, and knows that
        code = failed
    except Exception as error:  # noqa: BLE001 - Python's exit code 1 would mean something else
        program = Path(sys.argv[0]).stem
        name = "redlock" if program == "__main__" else f"redlock-{program.removeprefix('redlock-')}"
        complain(f"{name}: {_explained(error)}")
        code = failed
    for number, stream in enumerate((sys.stdout, sys.stderr), 1):
        try:
            stream.flush()
        except OSError:  # else Python would complain at exit about the text left in the buffer
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    sys.exit(code)


def _open_streams() -> None:
    """Open closed standard streams as /dev/null. Else the next file or pipe would get the number of a stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets this number, the lowest free one
            os.set_inheritable(number, True)
    # Python sets a stream to None if it was closed at the start.
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as Python does for standard error


def print_utf_8() -> None:
    """Write UTF-8 to standard output, whatever the locale says: programs read it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _explained(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, RedlockError):  # a limit of the system, for example no more threads
        return str(error)
    import traceback  # noqa: PLC0415 - seldom needed

    # The text of the error is left out: it may quote anything, even passwords.
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}, a defect of this program: {place.filename}, line {place.lineno}"
