"""What both commands take on the command line, and how they complain of it."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


class Parser(argparse.ArgumentParser):
    """One that ends with the exit code of its command, and in one line that says what to do."""

    def __init__(self, *, usage_error: int, **options: object) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,     # what is abbreviated today may mean two things tomorrow
            **options,  # type: ignore[arg-type]
        )
        self._usage_error = usage_error

    def error(self, message: str) -> NoReturn:
        """What was given is quoted, and may be an address with a password in the wrong place."""
        message = re.sub(r"//[^\s]*@", "//***@", message)
        print(f"{self.prog}: {message}\nTry: {self.prog} --help", file=sys.stderr)  # noqa: T201
        self.exit(self._usage_error)


def add_deployment(parser: Parser) -> None:
    """The options that say which masters, and on which terms (C21)."""
    group = parser.add_argument_group("the deployment")
    group.add_argument(
        "--config", metavar="FILE", help="TOML file with the masters, credentials, TLS files and these options"
    )
    group.add_argument("--prefix", metavar="TEXT", help="of every key (default: redlock:)")
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


def seconds(text: str) -> float:
    """A finite number of seconds above 0."""
    return _seconds(text, lambda number: number > 0, "more than 0")


def seconds_or_none(text: str) -> float:
    """A finite number of seconds, 0 included."""
    return _seconds(text, lambda number: number >= 0, "0 or more")


def _seconds(text: str, allowed: Callable[[float], bool], what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and allowed(number)):
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a number of seconds, {what}")
    return number


def entry(main: Callable[[list[str]], int], broken_pipe: int) -> NoReturn:
    """Run a command as the program: no traceback for Ctrl-C or for a reader that has gone."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130      # as shells say it of a program that ended by SIGINT
    except BrokenPipeError:
        # What is still in the buffer would be complained of at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = broken_pipe
    sys.exit(code)
