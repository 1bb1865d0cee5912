"""One more master (R34): the step is taken when `redlock-check --plan` says so, as an operator takes it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from . import names

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOW, _LATER = 0, 1  # exit codes of redlock-check --plan


class StepRefused(RuntimeError):  # noqa: N818 - named for what happened
    """It says that there is no safe step, or another one than the plan of this run has."""


def may_begin(urls: Sequence[str], used: Sequence[int], uses: Sequence[int], max_ttl: float) -> bool:
    """Whether clients that have the masters ``used`` may be given ``uses`` now.  ``urls``: of all masters there are.

    Raises:
        StepRefused: that is not the next step.
    """

    def text(numbers: Sequence[int]) -> str:
        return ",".join(f"{names.master(number)}={urls[number - 1]}" for number in numbers)

    # To the end, not to the next step alone: so it is the program that knows what comes next.
    wanted = text(range(1, len(urls) + 1))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "redlock._cli.check", "--max-ttl", f"{max_ttl:g}", "--timeout", "20", "--plan", wanted],
        env={**os.environ, "REDLOCK_MASTERS": text(used)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    step = f"all clients get: {', '.join(sorted(map(names.master, uses)))} "
    first = done.stdout.partition("\nStep 2 ")[0]
    if done.returncode not in (_NOW, _LATER) or step not in first:
        raise StepRefused(
            f"redlock-check --plan ended with {done.returncode}, and not with {step!r}:\n{done.stdout}{done.stderr}"
        )
    return done.returncode == _NOW
