"""A program that PyInstaller has packed has all that it needs of this library; see the tests of redlock-run as well."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.servers.commands import environment
from tests.servers.needs import missing

pytestmark = pytest.mark.timeout(300)  # PyInstaller looks at all that Python has

PROGRAM = """
import asyncio
import sys

import redlock
from redlock._cli.run import entry


async def on_a_loop():
    async with redlock.AsyncMasters.from_env(restart_guard=False) as masters, masters.lock("job") as lease:
        print("asyncio", lease.valid)


def in_threads():
    with redlock.Masters.from_env(restart_guard=False) as masters:
        with masters.slots("job", limit=2) as lease:
            print("threads", lease.valid)
        for term in masters.leader("job").terms():
            with term:
                print("leads", term.valid)
            break


if sys.argv[1:]:
    entry()
asyncio.run(on_a_loop())
in_threads()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if importlib.util.find_spec("PyInstaller") is None:
        missing("PyInstaller")
    if "redlock._pyinstaller:hook_dirs" not in {one.value for one in entry_points(group="pyinstaller40")}:
        missing("the entry point for PyInstaller: install the library again")
    folder = tmp_path_factory.mktemp("program")
    (folder / "app.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", "app.py"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "dist" / "app" / "app"


def test_it_locks_and_leads(program, redlock_servers):
    done = subprocess.run(
        [program], env=environment(redlock_servers.urls), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.split("\n"), done.stderr) == (["asyncio True", "threads True", "leads True", ""], "")


def test_its_redlock_run_runs_a_command_and_ends_it_in_time(program, redlock_servers):
    def run(*arguments):
        return subprocess.run(
            [program, "job", "--no-restart-guard", *arguments],
            env=environment(redlock_servers.urls), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    done = run("--", "sh", "-c", "echo $REDLOCK_NAME; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "job\n", "")
    done = run("--max-hold", "0.5", "--", "sleep", "60")
    assert done.returncode == 70, done.stderr
