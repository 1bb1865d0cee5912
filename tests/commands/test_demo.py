"""What the README tells people to run does run, and leaves nothing behind."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from examples.demo import demo
from redlock import testing
from tests.servers.one import with_functions

README = Path(__file__).parents[2] / "README.md"


def printed(*options: str) -> str:
    check = [sys.executable, "-m", "redlock._cli.check", *options]
    return subprocess.run(check, capture_output=True, text=True, check=True).stdout


def test_demo():
    demo = [sys.executable, "-W", "error", "-m", "examples.demo"]
    done = subprocess.run(demo, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for part in (
        "fencing token",
        "NotAcquired: 'invoice:42' not acquired in 1 attempt: held by",
        "extended: valid for",
        "QuorumUnreachable: 'invoice:42' not acquired in 1 attempt: at least 3 of 5 masters did not vote",
        "quarantined",
        "more than",
        "Lock keys left on the masters that are up: 0",
    ):
        assert part in done.stdout


class WithoutScripts(testing.LocalMasters):
    """Their user has the rule that is printed, and each start loads the function library (R44)."""

    def __init__(self, n: int) -> None:
        super().__init__(n, server=with_functions()[0])
        self._rule = shlex.split(printed("--acl", "--functions"))
        self._library = printed("--functions")

    def start(self) -> None:
        super().start()
        for i in range(len(self.ports)):
            self._begin(i)

    def restart(self, i: int, keep_data: bool = True) -> None:
        super().restart(i, keep_data)
        self._begin(i)

    def _begin(self, i: int) -> None:
        self.client(i).execute_command("ACL", "SETUSER", "locks", "reset", "on", ">secret", *self._rule)
        self.client(i).function_load(self._library)

    @property
    def urls(self) -> list[str]:
        return [url.replace("redis://", "redis://locks:secret@") for url in super().urls]

    def no_script_was_run(self) -> None:
        calls = self.client(4).info("commandstats")
        assert calls["cmdstat_fcall"]["calls"] > 4, "more than those of a new connection"
        assert not {"cmdstat_eval", "cmdstat_evalsha", "cmdstat_script|load"} & calls.keys()


def test_the_demo_with_a_user_who_may_run_no_script(capsys):
    """R44."""
    with WithoutScripts(5) as servers:
        demo(servers)
        servers.no_script_was_run()
    assert "Lock keys left on the masters that are up: 0" in capsys.readouterr().out


def test_the_first_example_with_a_user_who_may_run_no_script(capsys, monkeypatch):
    """R44."""
    monkeypatch.setattr(testing, "LocalMasters", WithoutScripts)
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    there: dict[str, Any] = {}
    exec(example[1], there)  # noqa: S102
    there["servers"].no_script_was_run()
    there["masters"].close()
    there["servers"].stop()
    assert "pay, and let the store refuse" in capsys.readouterr().out
