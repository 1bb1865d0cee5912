"""``python -m chaos`` as a program: what cannot be written, and Ctrl-C."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHAOS = [sys.executable, "-m", "chaos"]


def shell(redirection, *words):
    script = f'exec "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, "sh", *CHAOS, *words], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("words", [["list"], ["--help"], ["check", "--help"]], ids=" ".join)
def test_a_full_disk_is_2_and_a_line(words):
    done = shell(">/dev/full", *words)
    assert (done.returncode, done.stderr) == (2, "python -m chaos: OSError: [Errno 28] No space left on device\n")


@pytest.mark.parametrize(("words", "meant"), [
    (["run", "--faults", "kil"], "kill"),
    (["run", "--variant", "minorty"], "minority"),
    (["run", "--scenario", "klepmann"], "kleppmann"),
    (["ci", "--only", "kil"], "kill"),
])  # fmt: skip
def test_of_a_name_that_is_mistyped_it_says_which_one_was_meant(words, meant):
    done = shell("", *words)
    assert (done.returncode, done.stderr.splitlines()[-1].endswith(f"{words[-1]!r}: did you mean {meant}?")) == (
        2,
        True,
    )
    assert done.stderr.startswith(("python -m chaos", "usage: python -m chaos"))


def test_what_nobody_can_be_told_is_no_verdict():
    assert shell("2>/dev/full", "check", "there is none").returncode == 2
    assert shell("2>/dev/full", "nonsense").returncode == 2
    assert shell(">/dev/full 2>&1", "list").returncode == 2


STRUCK = """
import signal, sys
from chaos import __main__ as chaos

class Struck:
    def find_spec(self, name, *_):
        if name == "chaos.catalogue":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Struck())
sys.argv = ["chaos", "list"]
chaos.entry()
"""


def test_ctrl_c_while_a_command_is_imported():
    done = subprocess.run([sys.executable, "-c", STRUCK], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")
