"""The command line.  A command is a module with ``add_arguments(parser)`` and ``main(args) -> int``.

Only the one that is asked for is imported: judging a history needs neither servers nor clients.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Final, NoReturn

from . import NAME
from .faults import unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

COMMANDS: Final = {
    "run": (".run", "masters, clients and faults for a while; record, judge, report"),
    "check": (".check", "judge a recorded history"),
    "export": (".export", "a lock of a history as a register, for Porcupine and Knossos"),
    "explore": (".explore", "every step that the specification allows, in small worlds"),
    "prove": (".prove", "promises for any number of masters, by a solver, and what breaks without which rule"),
    "ci": (".ci", "the suite: every scenario, and every broken variant, which must be caught"),
    "list": (".catalogue", "backends, faults and scenarios"),
}
_UNKNOWN: Final = 2  # neither passed nor violated: the harness itself failed
_INTERRUPTED: Final = 130  # as shells say it of a program that ended by SIGINT

_EPILOG: Final = f"""\
exit codes: 0 passed, 1 violated, 2 unknown or a failure of the harness

examples:
  {NAME} run --seed 7 --duration 60 --faults kill,pause,partition --out DIR
  {NAME} check DIR/history.jsonl
  {NAME} check history.jsonl --must exclusive,fenced --out REPORT
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code.  Whatever goes wrong in here is 2: only a verdict is 0 or 1."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()  # what cannot be written is found here, and not at exit
    except BrokenPipeError:  # whoever reads has gone, as `head` does
        return _UNKNOWN
    except OSError as error:  # a full disk for example
        _complain(f"{NAME}: {type(error).__name__}: {error}\n")
        return _UNKNOWN
    except Exception:  # noqa: BLE001 - a traceback would exit with 1, which is a verdict
        _complain(traceback.format_exc())
        return _UNKNOWN
    return code


def entry() -> NoReturn:
    """As the program: an exit code of ours, whatever becomes of the streams."""
    code: int | str | None
    try:
        code = main()
    except SystemExit as ending:
        code = ending.code
    except KeyboardInterrupt:
        code = _INTERRUPTED
    for number, stream in enumerate((sys.stdout, sys.stderr), 1):
        try:
            stream.flush()
        except OSError:  # what is still in the buffer would be complained of at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    sys.exit(code)


def _complain(text: str) -> None:
    """If nobody can be told, the exit code has to do."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


class _Parser(argparse.ArgumentParser):
    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            what = (action.option_strings or [action.dest])[0].removeprefix("--")
            raise argparse.ArgumentError(action, unknown(what, str(value), list(action.choices)))

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Argparse says nothing of what it could not write."""
        if file is not None:
            super().print_help(file)
            return
        sys.stdout.write(self.format_help())
        sys.stdout.flush()


def parser(*wanted: str) -> argparse.ArgumentParser:
    """With the arguments of the commands ``wanted``, and the names of the others."""
    this = _Parser(
        prog=NAME,
        description="Breaks real Redis servers under real clients, and judges the recorded history.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = this.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, meaning) in COMMANDS.items():
        command = commands.add_parser(name, help=meaning, description=meaning)
        if name in wanted:
            found = importlib.import_module(module, __package__)
            found.add_arguments(command)
            command.set_defaults(main=found.main)
    return this


def _run(words: Sequence[str]) -> int:
    wanted = (word for word in words if not word.startswith("-"))
    args = parser(next(wanted, "")).parse_args(words)
    code: int = args.main(args)
    return code


if __name__ == "__main__":
    entry()
