"""The commands `redlock-check` and `redlock-run`. See docs/redlock-check.md and docs/redlock-run.md.

These two functions are what their scripts call. They import the command, which takes some tenths of a second: a
Ctrl-C during that ends it as at any other time.
"""

import sys
from typing import Any, NoReturn

_modules: dict[str, Any] = sys.modules


def redlock_check() -> NoReturn:
    _without_opentelemetry()
    try:
        from redlock._cli.check import entry  # noqa: PLC0415

        entry()
    except KeyboardInterrupt:
        sys.exit(130)  # as `entry` does


def redlock_run() -> NoReturn:
    _without_opentelemetry()
    try:
        if sys.platform == "win32":  # most of what it imports does not exist there
            from redlock._system.platform import SENTENCE  # noqa: PLC0415

            sys.stderr.write(f"redlock-run: {SENTENCE}\n")
            sys.exit(71)  # the code for a command that cannot be started
        from redlock._cli.run import entry  # noqa: PLC0415

        entry()
    except KeyboardInterrupt:
        sys.exit(130)


def _without_opentelemetry() -> None:
    """redis-py would import all of it, where it is installed. No command measures anything with it."""
    _modules.setdefault("opentelemetry", None)
