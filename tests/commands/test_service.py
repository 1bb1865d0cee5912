"""`redlock-run --service` as a program: one of several works, the next one takes over, and nothing is left (R31)."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.commands.terminal import Terminal
from tests.servers.commands import RUN, STUBBORN, line, started
from tests.servers.look import alive, child_of, eventually, nothing_left
from tests.servers.needs import as_process_1, missing

JOB = ["--no-restart-guard", "--service", "job"]
# Says its term, and ends when it is told.
SLEEPS = ["sh", "-c", "echo $REDLOCK_FENCE; exec sleep 600"]


def service(servers, name, *command, ttl=60.0, more=(), program=RUN, **options):
    """A replica called ``name``.  With such a TTL nobody waits for its end."""
    arguments = [*JOB, "--owner", name, "--ttl", f"{ttl:g}", *more, "--", *command]
    return started(arguments, servers.urls, program, **options)


def says(process, text):
    """Read what it says until ``text`` is in it.  Returns that line."""
    heard = []
    for said in process.stderr:
        heard.append(said)
        if text in said:
            return said
    raise AssertionError(f"it has ended, and never said {text!r}: {heard}")


def leads(servers, name) -> bool:
    owners = [keys["redlock:job"][0].partition(":")[2] for keys in servers.keys() if keys and "redlock:job" in keys]
    return owners.count(name) >= 3


def ended_by(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    return process.wait(30)


# Writes down what it does.  When it is told to end, it does so once there is a file "may end".
TAKES_ITS_TIME = """\
trap 'echo told; until [ -e "may end" ]; do sleep 0.02; done; echo "$0 ends" >>log; exit 5' TERM
echo "$0 begins" >>log; echo begun; while :; do sleep 0.02; done"""


def test_told_to_end_it_hands_over_when_its_command_has_ended(servers, tmp_path):
    """At once then, and not after a TTL.  Until then nobody else begins (P1)."""
    command = ["sh", "-c", TAKES_ITS_TIME]
    with service(servers, "a", *command, "a", cwd=tmp_path) as a:
        assert line(a) == "begun"
        with service(servers, "b", *command, "b", cwd=tmp_path) as b:
            says(b, "waiting: a leads 'job'")
            a.terminate()
            assert line(a) == "told"
            assert leads(servers, "a")
            (tmp_path / "may end").touch()
            assert a.wait(30) == 5
            assert line(b) == "begun"
            assert ended_by(b, signal.SIGTERM) == 5
    assert (tmp_path / "log").read_text("utf-8").splitlines() == ["a begins", "a ends", "b begins", "b ends"]
    eventually(lambda: nothing_left(servers))


# What runs in the next term says which of these processes are left.  One that nobody has waited for yet is not.
LOOKS = """ps -o stat= -p "$(tr ' ' , <pids)" | grep -v Z; echo looked; exec sleep 600"""
STUBBORN_AND_KNOWN = STUBBORN.replace("echo $$ $!", "echo $$ $! >pids; echo begun")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_or_stopped_its_command_is_gone_before_another_one_leads(servers, how, tmp_path):
    """P3: a TTL later.  One that was stopped and goes on knows that it has lost, and stands again."""
    ttl = 3.0
    with service(servers, "a", "sh", "-c", STUBBORN_AND_KNOWN, ttl=ttl, cwd=tmp_path) as a:
        assert line(a) == "begun"
        with service(servers, "b", "sh", "-c", LOOKS, ttl=ttl, cwd=tmp_path) as b:
            says(b, "waiting: a leads 'job'")
            a.send_signal(how)
            assert line(b) == "looked"
            if how == signal.SIGSTOP:
                a.send_signal(signal.SIGCONT)
                says(a, "lost 'job': ")
                says(a, "waiting: b leads 'job'")
                assert ended_by(b, signal.SIGTERM) == 143
                assert line(a) == "begun"
                a.kill()
            else:
                assert ended_by(b, signal.SIGTERM) == 143


# The n-th time it ends with the n-th of its arguments, or sleeps when there is none.
ENDS_WITH = """\
echo $REDLOCK_FENCE >>terms; shift "$(($(wc -l <terms) - 1))"
[ -n "$1" ] && exit "$1"; echo ready; exec sleep 600"""


def terms(folder: Path) -> list[int]:
    return [*map(int, (folder / "terms").read_text("utf-8").split())]


@pytest.mark.parametrize(("more", "codes", "code", "begun"), [
    (["--restart", "never"], "3 4", 3, 1),
    (["--restart", "on-failure"], "3 4 0 5", 0, 3),
    ([], "0 3", 143, 3),
])  # fmt: skip
def test_it_begins_again_as_it_was_told_and_in_a_higher_term(servers, tmp_path, more, codes, code, begun):
    """P2."""
    with service(servers, "a", "sh", "-c", ENDS_WITH, "sh", *codes.split(), "", more=more, cwd=tmp_path) as a:
        if code == 143:
            assert line(a) == "ready"
            a.terminate()
        assert a.wait(30) == code
    found = terms(tmp_path)
    assert len(found) == begun
    assert found == sorted({*found})
    eventually(lambda: nothing_left(servers))


@pytest.mark.parametrize(("command", "code"), [("/does/not/exist", 127), ("/etc/passwd", 126)])
def test_what_cannot_be_started_is_not_tried_again(servers, command, code):
    with service(servers, "a", command) as a:
        assert a.wait(30) == code
        says(a, f"{command}: ")
    eventually(lambda: nothing_left(servers))


def test_max_hold_is_the_longest_term(servers):
    with service(servers, "a", *SLEEPS, ttl=20, more=["--max-hold", "0.3", "--guard", "1"]) as a:
        first, second = int(line(a)), int(line(a))
        assert second > first
        says(a, "--max-hold is 0.3 s; the command gets SIGTERM")
        assert re.search(r"ended with 143; no other client gets it for another \d\.\d s$", says(a, "resigned: "))  # R36
        a.terminate()
        assert a.wait(30) in (70, 143)  # --max-hold may have come first


def test_a_guard_that_is_killed_costs_a_term(servers):
    with service(servers, "a", "sh", "-c", STUBBORN) as a:
        pids = [*map(int, line(a).split())]
        os.kill(child_of(a.pid), signal.SIGKILL)
        again = [*map(int, line(a).split())]
        assert not any(map(alive, pids))
        assert all(map(alive, again))
        says(a, "was killed or hangs; held for ")


# Of itself: its signals, descriptors and variables.  Of redlock-run, its parent's parent: the descriptors.
SHOWS = """
import os, sys
print([line for line in open("/proc/self/status") if line.startswith("Sig") and not line.startswith("SigQ")], end=" ")
print(sorted(os.listdir("/proc/self/fd")), sorted(os.environ), end=" ")
(us,) = [line.split()[1] for line in open(f"/proc/{os.getppid()}/status") if line.startswith("PPid:")]
kinds = [os.readlink(f"/proc/{us}/fd/{name}").partition(":")[0] for name in os.listdir(f"/proc/{us}/fd")]
print(sorted(kind for kind in kinds if kind != "socket"), flush=True)
sys.exit(len(open("seen").readlines()) < 3)
"""


@pytest.mark.parametrize("terminal", [False, True])
def test_every_command_finds_the_same(servers, tmp_path, terminal):
    """And redlock-run has no more descriptors than in its first term."""
    if not Path("/proc/self/status").exists():
        missing("/proc")
    command = [sys.executable, "-c", SHOWS]
    with open(tmp_path / "seen", "w") as seen:
        if terminal:
            shell = ["sh", "-c", '"$@" >>seen', "sh", *RUN, *JOB, "--restart", "on-failure", "--", *command]
            with Terminal(shell, servers.urls, cwd=tmp_path) as at:
                assert at.end() == 0, at.seen
        else:
            with service(servers, "a", *command, more=["--restart", "on-failure"], cwd=tmp_path, stdout=seen) as a:
                assert a.wait(60) == 0
    first, second, third = (tmp_path / "seen").read_text("utf-8").splitlines()
    assert first == second == third


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_waits_ends_it_and_leaves_nothing(servers, number):
    with service(servers, "a", *SLEEPS) as a:
        assert line(a)
        with service(servers, "b", "echo", "ran") as b:
            says(b, "waiting: a leads 'job'")
            b.send_signal(signal.SIGUSR1)  # is for a command, and there is none
            b.send_signal(signal.SIGUSR2)
            b.send_signal(number)
            output, errors = b.communicate(timeout=30)
            assert (b.returncode, output, errors) == (128 + number, "", "")
        assert leads(servers, "a")
        assert ended_by(a, signal.SIGTERM) == 143
    eventually(lambda: nothing_left(servers))


# redlock-run, which gets a signal where none from outside would come with certainty.
UNLUCKY = """
import os, signal, sys
from redlock._cli import job, run, service, watchdog
from redlock._lock import election_threads as election
where, number = sys.argv[1], int(sys.argv[2])
sys.argv[1:3] = []
def then_a_signal(at, room, name, tells=""):
    real = getattr(room, name)
    def does(*what, **options):
        global where
        result = real(*what, **options)
        if where == at and tells in str(what):
            where = "nowhere"
            os.kill(os.getpid(), number)
        return result
    setattr(room, name, does)
service._FIRST = 30.0
then_a_signal("granted", election.Term, "__init__")
then_a_signal("elected", run, "_say", "elected")
then_a_signal("begun", job.Job, "begin")
then_a_signal("ended", watchdog.Watchdog, "dismiss")
then_a_signal("resigned", run, "_say", "resigned")
then_a_signal("pause", run, "_say", "the next campaign")
run.entry()
"""


@pytest.mark.parametrize(("where", "number", "command", "code", "output"), [
    ("granted", signal.SIGINT, ["echo", "ran"], None, ""),
    ("elected", signal.SIGTERM, ["echo", "ran"], None, ""),
    ("begun", signal.SIGINT, ["sleep", "600"], None, ""),
    ("ended", signal.SIGTERM, ["sh", "-c", "echo ran; exit 3"], 3, "ran\n"),
    ("resigned", signal.SIGINT, ["sh", "-c", "echo ran; exit 3"], None, "ran\n"),
    ("pause", signal.SIGTERM, ["sh", "-c", "echo ran; exit 3"], None, "ran\n"),
])  # fmt: skip
def test_a_signal_at_any_moment_of_a_term_ends_it(servers, where, number, command, code, output):
    program = [sys.executable, "-c", UNLUCKY, where, str(int(number))]
    with service(servers, "a", *command, program=program) as a:
        said, errors = a.communicate(timeout=30)
    assert a.returncode == (128 + number if code is None else code), errors
    assert said == output
    assert "Traceback" not in errors
    eventually(lambda: nothing_left(servers))


RELOADS = """\
trap 'echo reloaded' HUP; trap 'exit 1' USR1
echo ready; while :; do sleep 0.02; done"""


def test_a_signal_that_the_command_lives_through_does_not_end_the_service(servers):
    """Nor does it when the command fails some day."""
    with service(servers, "a", "sh", "-c", RELOADS) as a:
        assert line(a) == "ready"
        a.send_signal(signal.SIGHUP)
        assert line(a) == "reloaded"
        a.send_signal(signal.SIGUSR1)
        assert line(a) == "ready"
        assert ended_by(a, signal.SIGTERM) == 143


ENDS_WELL = "trap 'echo well; exit 0' INT; echo ready; while :; do sleep 0.02; done"


def test_ctrl_c_ends_it_also_if_its_command_ends_well(servers):
    with Terminal([*RUN, *JOB, "--", "sh", "-c", ENDS_WELL], servers.urls) as terminal:
        terminal.read_until("ready")
        terminal.type("\x03", "well")
        assert terminal.process.wait(30) == 0
    eventually(lambda: nothing_left(servers))


LEAVES_AN_ORPHAN = """\
trap 'echo told; exit 5' TERM
(sh -c 'echo $$ >orphan; exit 0' &)
until [ -s orphan ]; do sleep 0.02; done
while [ -e "/proc/$(cat orphan)" ]; do sleep 0.02; done
echo buried; while :; do sleep 0.02; done"""


def test_as_process_1_it_buries_orphans_and_passes_signals_on(servers, tmp_path):
    """Nobody else would wait for them; and process 1 gets no signal that it has no handler for."""
    contained = [*as_process_1(), *RUN]
    with service(servers, "a", "sh", "-c", LEAVES_AN_ORPHAN, program=contained, cwd=tmp_path) as a:
        assert line(a) == "buried"
        with service(servers, "b", "echo", "ran", program=contained) as b:
            says(b, "waiting: a leads 'job'")
            for number in (signal.SIGUSR1, signal.SIGTERM):
                os.kill(child_of(b.pid), number)
            assert b.wait(30) == 143
        os.kill(child_of(a.pid), signal.SIGTERM)
        assert line(a) == "told"
        assert a.wait(30) == 5
    eventually(lambda: nothing_left(servers))


def asked(said: str, path: str) -> tuple[int, dict[str, object]]:
    """What one answers at its port; ``said``: the line in which it has said where that is."""
    connection = http.client.HTTPConnection(said.strip().rpartition("http://")[2], timeout=30)
    connection.request("GET", path)
    with contextlib.closing(connection), connection.getresponse() as answer:
        return answer.status, json.loads(answer.read())


def test_a_slow_client_of_the_port_keeps_nothing_from_beginning_and_ending(servers):
    """A command that has ended begins again, a probe is answered, and SIGTERM ends the service."""
    command = ["sh", "-c", "echo begun; read line; exit 3"]
    enough = threading.Event()

    def drips(host: str, port: str) -> None:
        with socket.create_connection((host, int(port)), 30) as slow, contextlib.suppress(OSError):
            while not enough.wait(0.1):
                slow.sendall(b"G")

    with service(servers, "a", *command, more=["--status-port", "0"], stdin=subprocess.PIPE) as a:
        said = says(a, "answers /leader and /healthz at ")
        host, _, port = said.strip().rpartition("http://")[2].rpartition(":")
        clients = [threading.Thread(target=drips, args=(host, port)) for _ in range(3)]
        try:
            for client in clients:
                client.start()
            assert line(a) == "begun"
            assert asked(said, "/healthz")[0] == 200
            a.stdin.write("\n")
            a.stdin.flush()
            assert line(a) == "begun"
            assert ended_by(a, signal.SIGTERM) == 143
        finally:
            enough.set()
            for client in clients:
                client.join()


def test_probes_see_a_hand_over(servers):
    """R41: exactly one of three says that it leads, the next one soon after it was told to end."""
    with contextlib.ExitStack() as replicas:
        processes, ports = {}, {}
        for name in ("a", "b", "c"):
            one = replicas.enter_context(service(servers, name, *SLEEPS, ttl=20.0, more=["--status-port", "0"]))
            processes[name], ports[name] = one, says(one, "answers /leader and /healthz at ")
        leaders = []
        for left in (3, 2, 1):

            def leading() -> list[str]:
                return [name for name, port in ports.items() if asked(port, "/leader")[0] == 200]

            (leader,) = eventually(leading)
            leaders.append(leader)
            code, about = asked(ports[leader], "/leader")
            assert (code, about["leader"], about["leads"]) == (200, leader, True)
            assert asked(ports[leader], "/healthz") == (200, {"name": "job", "state": "leading"})
            for name in set(ports) - {leader}:
                eventually(lambda name=name, leader=leader: asked(ports[name], "/leader")[1]["leader"] == leader)
                assert asked(ports[name], "/healthz") == (200, {"name": "job", "state": "waiting"})
            assert len(ports) == left
            assert ended_by(processes[leader], signal.SIGTERM) == 143
            with pytest.raises(OSError, match="refused"):
                asked(ports.pop(leader), "/healthz")  # the port has ended with it
    assert sorted(leaders) == ["a", "b", "c"]
