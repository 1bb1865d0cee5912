"""`redlock-run` as a program: one at a time, signals, exit codes, the terminal, and the end in time."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import redlock
from tests.commands.terminal import Terminal
from tests.owners import witness
from tests.servers.commands import NO_WAIT, PATIENT, RUN, STUBBORN, line, run, start, started
from tests.servers.look import alive, child_of, each, eventually, kill, nothing_left, pause, resume
from tests.servers.needs import as_process_1, missing

NEW = "--no-restart-guard"  # the servers are
RUN_JOB = " ".join([*RUN, "job", NEW])


def holder_of(servers) -> list[tuple[str, int]]:
    return [keys["redlock:job"] for keys in servers.keys() if keys and "redlock:job" in keys]


def just_renewed(servers, ttl):
    """Wait for a renewal."""

    def left():
        return min([pttl / 1000 for _, pttl in holder_of(servers)], default=0.0)

    eventually(lambda: 0 < left() < ttl * 0.8, 30)  # not the acquire
    eventually(lambda: left() > ttl * 0.8, 30)


# -- the command -------------------------------------------------------------------------------------


def test_the_command_knows_its_lock_and_gets_what_is_passed(servers):
    show = "import os, sys; print(os.environ['REDLOCK_NAME'], os.environ['REDLOCK_TOKEN'], os.environ['REDLOCK_FENCE'], sys.stdin.read(), sys.argv[1:])"
    command = [sys.executable, "-c", show, "--ttl", "--", "x"]
    done = run([*RUN, NEW, *PATIENT, "job", "--", *command], servers.urls, input="hello")
    assert done.returncode == 0, done.stderr
    name, token, fence, text, rest = done.stdout.split(maxsplit=4)
    assert (name, text, rest.strip()) == ("job", "hello", "['--ttl', '--', 'x']")
    assert re.fullmatch(r"[0-9a-f]{40}:\S+/\d+", token)
    assert [servers.client(i).get("{redlock:job}:fence") for i in range(5)].count(fence.encode()) >= 3
    assert done.stderr == ""  # for cron, which mails whatever is said
    eventually(lambda: nothing_left(servers))


@pytest.mark.parametrize(("command", "code"), [
    (["sh", "-c", "exit 7"], 7),
    (["sh", "-c", "kill -KILL $$"], 137),
    (["sh", "-c", "kill -INT $$"], 130),
    (["/does/not/exist"], 127),
    (["/etc/passwd"], 126),
    (["./script"], 3),  # it does not say whose it is, so it belongs to the shell
])  # fmt: skip
def test_the_exit_code_is_that_of_the_command(servers, command, code, tmp_path):
    """C24."""
    script = tmp_path / "script"
    script.write_text("exit 3\n", encoding="utf-8")
    script.chmod(0o755)
    done = run([*RUN, "job", NEW, *PATIENT, "--", *command], servers.urls, cwd=tmp_path)
    assert done.returncode == code
    assert bool(done.stderr) == (code in (126, 127))
    eventually(lambda: nothing_left(servers))


@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C"}])
def test_the_command_has_the_environment_that_redlock_run_was_given(servers, locale):
    """As cron gives it; Python itself sets LC_CTYPE where the locale is C (PEP 538)."""
    given = {"PATH": os.environ["PATH"], "REDLOCK_MASTERS": ",".join(servers.urls), "EMPTY": "", **locale}
    done = subprocess.run(
        [*RUN, "job", NEW, "--", shutil.which("env") or "env", "-0"],
        env=given,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    got = dict(pair.split("=", 1) for pair in done.stdout.split("\0")[:-1])
    if not Path("/proc/self/environ").exists():
        got.pop("LC_CTYPE", None)  # nobody knows there whether it was given
        given.pop("LC_CTYPE", None)
    assert {*got} - {*given} == {f"REDLOCK_{what}" for what in ("NAME", "TOKEN", "OWNER", "FENCE")}
    assert {name: got[name] for name in given} == given


@pytest.mark.parametrize("how", [[*NO_WAIT], ["in a third"]])
def test_a_redlock_run_in_one_of_the_same_name_does_not_wait_for_itself(servers, how):
    """Nor does it where there is another one between them, and owners may have blanks in them."""
    nested = ["--", *RUN, NEW, "--owner", "two words"]
    inner = [*nested, "other", *nested, "job"] if how == ["in a third"] else [*nested, "job", *how]
    done = run([*RUN, "job", NEW, *inner, "--", "echo", "ran"], servers.urls, seconds=100)
    assert done.returncode == 64
    assert done.stdout == ""
    assert "'job' is held by an outer redlock-run" in done.stderr
    assert "env -u REDLOCK_TOKEN" in done.stderr
    eventually(lambda: nothing_left(servers))


# Says that it has begun, waits for a line, and becomes another redlock-run.
NESTED = ["sh", "-c", 'echo begun; read line; exec "$@"', "sh"]


def a_writer_waits(servers) -> bool:
    return sum(bool(servers.client(i).zcount("redlock:job", "-inf", "(0")) for i in range(5)) >= 3


@pytest.mark.parametrize(("how", "code"), [([], 64), ([*NO_WAIT], 75)])
def test_a_reader_in_a_reader_does_not_wait_for_a_writer_that_waits_for_both(servers, how, code):
    """The outer one waits for its command, that for the writer, and the writer for the outer one."""
    inner = [*RUN, "job", NEW, "--shared", *how, "--", "echo", "ran"]
    outer = ["job", NEW, "--shared", "--", *NESTED, *inner]
    with started(outer, servers.urls, stdin=subprocess.PIPE) as reader:
        assert line(reader) == "begun"
        with started(["job", NEW, "--", "echo", "written"], servers.urls) as writer:
            eventually(lambda: a_writer_waits(servers), 30)
            said, errors = reader.communicate("go on\n", timeout=30)
            assert (reader.returncode, said) == (code, "")
            if code == 64:
                assert "'job' is held shared by an outer redlock-run, and a writer is waiting" in errors
                assert "env -u REDLOCK_TOKEN" in errors
            else:
                assert "not acquired: 'job' is held shared by 1 (" in errors
                assert "; a writer is waiting, and new readers come after it\n" in errors
            assert line(writer) == "written"


@pytest.mark.parametrize("slots", [[], ["--slots", "1"]])
def test_a_redlock_run_in_one_of_the_same_name_does_not_wait_for_itself_after_an_outage(servers, slots):
    """Without a quorum it does not know who has the lock, so it asks again."""
    job = ["job", NEW, *slots, "--"]
    with started([*job, *NESTED, *RUN, *job, "true"], servers.urls, stdin=subprocess.PIPE) as outer:
        assert line(outer) == "begun"
        pause(servers, 3)
        print("go on", file=outer.stdin, flush=True)
        assert "no quorum; waiting for one" in outer.stderr.readline()
        resume(servers, 3)
        assert "by an outer redlock-run" in outer.communicate(timeout=30)[1]
        assert outer.returncode == 64


def test_a_slot_in_a_slot_is_another_one_while_there_is_one(servers):
    nested = [*RUN, "job", NEW, "--slots", "2", "--owner", "", "--"]
    show = ["sh", "-c", 'echo "$REDLOCK_NAME,$REDLOCK_SLOT,$REDLOCK_OWNER"; exec "$@"', "sh"]
    done = run([*nested, *show, *nested, *show, *nested, *show, "true"], servers.urls)
    assert (done.returncode, sorted(done.stdout.split())) == (64, ["job#0,0,", "job#1,1,"])
    assert "'job' is held by an outer redlock-run" in done.stderr


def test_a_redlock_run_in_one_of_another_name_or_prefix_runs(servers):
    for inner in (["other"], ["job", "--prefix", "mine:"]):
        done = run([*RUN, "job", NEW, "--", *RUN, NEW, *inner, "--", "sh", "-c", "echo $REDLOCK_NAME"], servers.urls)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{inner[0]}\n", "")


def test_what_a_hold_that_is_over_has_left_in_the_environment_keeps_nobody_away(servers):
    """In a daemon that was once started under the lock; also while another one holds it."""
    old = run([*RUN, "job", NEW, "--", "sh", "-c", "echo $REDLOCK_TOKEN"], servers.urls).stdout.strip()
    left = {"REDLOCK_NAME": "job", "REDLOCK_TOKEN": old, "REDLOCK_FENCE": "1"}
    with started(["job", NEW, "--", "sh", "-c", "echo begun; read line"], servers.urls, stdin=subprocess.PIPE) as other:
        assert line(other) == "begun"
        done = run([*RUN, "job", NEW, "--wait", "0.3", *PATIENT, "--", "true"], servers.urls, environment=left)
        assert done.returncode == 75, done.stderr
        other.communicate("end\n", timeout=30)
    done = run([*RUN, "job", NEW, *PATIENT, "--", "echo", "ran"], servers.urls, environment=left)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_what_is_begun_in_the_background_may_take_its_turn_behind_us(servers, tmp_path):
    """Which is what the message says to who means that."""
    done = tmp_path / "done"
    inner = " ".join(["env", "-u", "REDLOCK_TOKEN", *RUN, NEW, "job", "--", "touch", f"'{done}'"])
    assert run([*RUN, "job", NEW, "--", "sh", "-c", f"{inner} >/dev/null 2>&1 &"], servers.urls).returncode == 0
    eventually(done.exists, 30)
    eventually(lambda: nothing_left(servers), 30)


@pytest.mark.parametrize(("kind", "holder"), [
    ([], "'job' is held by web-1 for "), (["--slots", "1"], "'job': 0 of 1 slots are free, held by web-1"),
])  # fmt: skip
def test_who_has_it_is_said_on_one_line_unless_it_is_to_be_quiet(servers, kind, holder):
    with started(
        ["job", NEW, *kind, "--owner", "web-1", "--", "sh", "-c", "echo on; exec sleep 600"], servers.urls
    ) as first:
        assert line(first) == "on"
        for how, begins in (NO_WAIT, "not acquired: "), (["--wait", "0.2", *PATIENT], r"not acquired in \d+\.\d s: "):
            done = run([*RUN, "job", *how, *kind, NEW, "--", "true"], servers.urls)
            assert (done.returncode, done.stdout) == (75, "")
            assert re.fullmatch(f"redlock-run: {begins}{re.escape(holder)}.*\n", done.stderr), done.stderr
        done = run([*RUN, "job", *NO_WAIT, "-q", *kind, NEW, "--", "true"], servers.urls)
        assert (done.returncode, done.stdout, done.stderr) == (75, "", "")


@pytest.mark.parametrize(("silent", "verbose"), [(3, ["--guard", "7"]), (2, ["--verbose"])])
def test_it_says_released_when_a_majority_has_heard_of_it_and_not_before(servers, silent, verbose):
    """Some masters hang when the command ends."""
    command = [*PATIENT, "--", "sh", "-c", "echo begun; read line"]  # which the others keep
    with started(["job", NEW, *verbose, *command], servers.urls, stdin=subprocess.PIPE) as process:
        assert line(process) == "begun"
        eventually(lambda: len(holder_of(servers)) == 5)
        for i in range(silent):
            servers.pause(i)
        _, errors = process.communicate("end\n", timeout=30)
        assert process.returncode == 0
    assert ("acquired 'job', fencing token" in errors) == ("released 'job'" in errors) == (silent == 2)
    assert (f"{silent} of 5 masters did not confirm the release of 'job'" in errors) == (silent > 2)
    if silent > 2:
        assert "keeps the lock for its TTL and guard, 37 s at most" in errors
        assert errors.count("no answer within") == silent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_waits_ends_it_and_leaves_nothing(servers, number):
    each(servers, "set", "redlock:job", "somebody", px=60_000)
    with started(["job", NEW, *PATIENT, "-v", "--", "echo", "ran"], servers.urls) as process:
        assert "held by somebody" in process.stderr.readline()
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert output == ""
    assert "Traceback" not in errors
    assert [value for value, _ in holder_of(servers)] == ["somebody"] * 5


# -- signals -----------------------------------------------------------------------------------------

COUNTS = """
import os, signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: got.append(number) or print(signal.Signals(number).name, flush=True))
print("ready", flush=True)
while signal.SIGUSR1 not in got:
    time.sleep(0.02)
"""


def test_signals_are_forwarded_once_each(servers):
    with started(["job", NEW, "--", sys.executable, "-c", COUNTS], servers.urls) as process:
        assert line(process) == "ready"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
            process.send_signal(number)
            assert line(process) == number.name  # two of a kind may become one on the way, as always
        output, _ = process.communicate(timeout=30)
    assert (output, process.returncode) == ("", 0)


def state_of(pid: int) -> str:
    return subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout[:1]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_for_a_command_that_is_stopped_ends_it(servers, number):
    """By a debugger, or by an operator: it would wait for ever, and be renewed."""
    command = ["sh", "-c", "ulimit -c 0; echo $$; exec sleep 100"]
    with started(["job", NEW, "--ttl", "6", "--", *command], servers.urls) as process:
        pid = int(line(process))
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: state_of(pid) == "T", 30)
        just_renewed(servers, 6)
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    eventually(lambda: nothing_left(servers))


def test_what_is_ignored_stays_ignored(servers):
    """Under nohup, the command is as well."""
    command = [
        "sh", "-c", 'trap "" HUP; exec "$@"', "sh", *RUN, "job", NEW, "--", "sh", "-c", "echo ready; sleep 1; echo end",
    ]  # fmt: skip
    process = start(command, servers.urls)
    try:
        assert line(process) == "ready"
        process.send_signal(signal.SIGHUP)
        assert process.communicate(timeout=30)[0] == "end\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


WRITES_AND_LISTS = """
import contextlib, os, sys
os.write(int(sys.argv[1]), b"hello")
for number in range(256):
    with contextlib.suppress(OSError):
        os.fstat(number)
        print(number)
"""


@pytest.mark.parametrize("how", [
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])",
])  # fmt: skip
def test_started_by_somebody_who_does_not_wait_for_children(servers, how):
    """Some daemons ignore or block SIGCHLD, and whom they start inherits that; it is seen at once all the same."""
    starts = f"import os, signal, sys; {how}; os.execv(sys.argv[1], sys.argv[1:])"
    ends = "import sys, time; time.sleep(0.3); print(time.monotonic()); sys.exit(7)"
    command = [*RUN, "job", NEW, *PATIENT, "--ttl", "60", "--", sys.executable, "-c", ends]
    done = run([sys.executable, "-c", starts, *command], servers.urls)
    assert (done.returncode, done.stderr) == (7, "")
    assert time.monotonic() < float(done.stdout) + 10  # the next renewal is 16 s away, or more


def test_descriptors_that_were_passed_are_passed_on(servers):
    """A log of the shell's, the job server of make; and none of ours."""
    read, write = os.pipe()
    done = run(
        [*RUN, "job", NEW, "--", sys.executable, "-c", WRITES_AND_LISTS, str(write)], servers.urls, pass_fds=[write]
    )
    os.close(write)
    with open(read, "rb") as reader:
        assert reader.read() == b"hello"  # and then the end: nobody else has it any more
    assert done.stdout.split() == ["0", "1", "2", str(write)]


# With a command that has become another user's, as `sudo` does, and may not be signalled any more.
OUT_OF_REACH = """
import os, sys
from redlock._cli import run, watchdog
REFUSED = '''
def killpg(group, number):
    raise PermissionError(1, "Operation not permitted")
os.killpg = killpg
'''
exec(REFUSED)
program = watchdog._program().replace(b"import time\\n", b"import time\\n" + REFUSED.encode())
watchdog._program = lambda: program
sys.exit(run.main(sys.argv[1:]))
"""


def test_a_command_of_another_user_keeps_the_lock(servers, tmp_path):
    """Neither when we get a signal nor after --max-hold is it given to somebody else while the command runs (P1)."""
    go_on = tmp_path / "go on"
    command = ["sh", "-c", f"echo begun; while ! [ -e '{go_on}' ]; do sleep 0.05; done"]
    arguments = ["job", NEW, "--ttl", "6", "--max-hold", "2", "--", *command]
    with started(arguments, servers.urls, program=[sys.executable, "-c", OUT_OF_REACH]) as process:
        assert line(process) == "begun"
        tokens = {token for token, _ in holder_of(servers)}
        process.terminate()
        assert "--max-hold is 2 s" in process.stderr.readline()
        for _ in range(2):
            just_renewed(servers, 6)
            assert {token for token, _ in holder_of(servers)} == tokens
        assert process.poll() is None
        go_on.touch()
        assert process.wait(30) == 70
        assert "Traceback" not in process.stderr.read()


# -- the end in time ---------------------------------------------------------------------------------


# What is said of a loss: the name, why, for how long it was held and by whom; what became of the command follows.
HELD = r"lost 'job': .*{}; held for [0-9.]+ s by \S+/\d+, fencing token \d+; "


@witness("C23")
def test_all_masters_frozen_and_a_command_that_ignores_sigterm(servers):
    """Child and grandchild are gone (P6)."""
    with started(["job", NEW, "--ttl", "6", "--", "sh", "-c", STUBBORN], servers.urls) as process:
        ours = [int(pid) for pid in line(process).split()]
        just_renewed(servers, 6)
        pause(servers)
        assert process.wait(30) == 70
        assert not any(map(alive, ours))
        said = process.stderr.read()
        assert re.search(HELD.format("no renewal has worked, and the lease ends in .* s"), said), said
        assert "SIGKILL" in said


def test_a_loss_that_only_the_release_finds_is_said_like_any_other_one(servers, tmp_path):
    goes_on = tmp_path / "goes on"
    command = f"echo ready; while ! [ -e '{goes_on}' ]; do sleep 0.05; done"
    with started(["job", NEW, "--", "sh", "-c", command], servers.urls) as process:
        assert line(process) == "ready"
        each(servers, "set", "redlock:job", "somebody", px=60_000)
        goes_on.touch()
        assert process.wait(30) == 70
        said = process.stderr.read()
        assert re.search(HELD.format("another client holds it") + "the command had ended", said), said


# redlock-run, to which something happens where no signal from outside would come with certainty.
UNLUCKY = """
import os, signal, sys, time
from redlock._cli import job, run, watchdog
order, replace, us = watchdog.Watchdog.order, os.execvpe, os.getpid()
def ordered(dog, *times):
    if sys.argv[1] == "unheard":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    order(dog, *times)
    if sys.argv[1] == "heard":
        os.kill(os.getpid(), signal.SIGKILL)
def replaced(*what):
    if sys.argv[1] == "begun":
        os.kill(us, signal.SIGKILL)
    replace(*what)
watchdog.Watchdog.order, os.execvpe = ordered, replaced
sys.exit(run.main(sys.argv[2:]))
"""


@pytest.mark.parametrize("when", ["unheard", "heard", "begun"])
def test_killed_while_it_starts_its_command(servers, when):
    """Before the watchdog has heard of the command, before the command has begun, and right then: it does not go on."""
    arguments = ["job", NEW, "--ttl", "2", "--", "sh", "-c", STUBBORN]
    with started([when, *arguments], servers.urls, program=[sys.executable, "-c", UNLUCKY]) as process:
        assert process.wait(30) == -signal.SIGKILL
        said, _ = process.communicate(timeout=30)  # to the end of file: nobody is left who could write
    assert not said or when == "begun"


def test_a_command_does_not_begin_after_the_lock_has_ended(servers):
    """Stopped for longer than the TTL between the two."""
    arguments = ["stopped", "job", NEW, "--ttl", "1", "--", "echo", "ran"]
    with started(arguments, servers.urls, program=[sys.executable, "-c", UNLUCKY]) as process:
        eventually(lambda: state_of(process.pid) == "T", 30)
        eventually(lambda: not holder_of(servers))
        process.send_signal(signal.SIGCONT)
        said, errors = process.communicate(timeout=30)
    assert process.returncode == 70
    assert said == ""
    assert "the command was not started" in errors


def test_a_watchdog_that_is_killed(servers):
    """It has another name than redlock-run, so that it takes more than `killall`; and then the command does not go "
    "on."""
    with started(["job", NEW, "--", "sh", "-c", STUBBORN], servers.urls) as process:
        child, grandchild = map(int, line(process).split())
        watchdog = child_of(process.pid)
        if sys.platform == "linux":
            shown = subprocess.run(
                ["ps", "-o", "comm=", "-p", str(watchdog)], capture_output=True, text=True, check=True
            ).stdout
            assert shown == "redlock-guard\n"
        os.kill(watchdog, signal.SIGKILL)
        assert process.wait(30) == 70
        assert not alive(child)
        assert not alive(grandchild)
        assert "redlock-guard, which would end the command in time, was killed" in process.stderr.read()
    eventually(lambda: nothing_left(servers))


def test_a_watchdog_that_is_killed_in_a_container(servers):
    """As its first process we are the parent of what is left; and nobody waits for what is not our child."""
    contained = as_process_1()
    # It is the parent of the command.
    for first in [], ["sh", "-c", '"$@"; echo code $?', "sh"]:
        with started(
            ["job", NEW, "--", "sh", "-c", "sleep 100 & kill -KILL $PPID; wait"],
            servers.urls,
            [*contained, *first, *RUN],
        ) as process:
            output, _ = process.communicate(timeout=30)
            assert process.returncode == (0 if first else 70)
            assert output == ("code 70\n" if first else "")
    eventually(lambda: nothing_left(servers))


@pytest.mark.parametrize("pattern", ["redlock.*NAME", "NAME"])
def test_pkill_by_the_command_line_does_not_reach_the_watchdog(servers, pattern):
    """So the command, if that was not meant, has its SIGTERM and its grace."""
    if shutil.which("pgrep") is None:
        missing("pgrep")
    name = f"job-{os.getpid()}-{time.monotonic_ns()}"  # nobody else's
    command = "trap 'sleep 0.3; echo cleaned up; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    with started([name, NEW, "--", "sh", "-c", command], servers.urls) as process:
        assert line(process) == "ready"
        found = subprocess.run(
            ["pgrep", "-f", pattern.replace("NAME", name)], capture_output=True, text=True, check=False
        )
        assert found.stdout.split() == [str(process.pid)]
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        assert line(process) == "cleaned up"


# A watchdog that says that it is ready and does nothing more, as one would that hangs or that a debugger has stopped.
DEAF = """
import sys
from redlock._cli import run, watchdog
deaf = sys.argv.pop(1).encode()
watchdog._program = lambda: deaf
run.entry()
"""
READY_AND_DEAF = (
    "import os, struct, sys, time; os.write(int(sys.argv[3]), struct.pack('<ci', b'R', 0)); time.sleep(600)"
)


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("then", ["the masters hang", "it was held for long enough", "SIGTERM", "the command ends"])
def test_a_watchdog_that_is_stopped_or_does_nothing(servers, then, deaf):
    """SIGSTOP cannot be ignored.  It goes on, so the command ends in time and redlock-run hears of it.

    Where it does nothing, redlock-run kills the command in its place: in time, and also where nothing else is wrong.
    """
    long = then == "it was held for long enough"
    ttl = "60" if long or (then == "the command ends" and not deaf) else "2"  # no renewal, after 20 s, is what notices
    arguments = ["job", NEW, "--ttl", ttl, "--max-hold", "1" if long else "60", *(["--grace", "0.5"] if deaf else [])]
    program = [sys.executable, "-c", DEAF, READY_AND_DEAF] if deaf else RUN
    with started([*arguments, "--", "sh", "-c", "echo $$; exec sleep 600"], servers.urls, program) as process:
        child = int(line(process))
        if not deaf:
            os.kill(child_of(process.pid), signal.SIGSTOP)
        if then == "the masters hang":
            pause(servers)
        elif then == "SIGTERM":
            process.terminate()
            eventually(lambda: not alive(child), 30)
        elif then == "the command ends":
            os.kill(child, signal.SIGUSR1)
        heard = {"SIGTERM": 128 + signal.SIGTERM, "the command ends": 128 + signal.SIGUSR1}
        assert process.wait(15) == (70 if deaf else heard.get(then, 70))
        assert not alive(child)


WITHOUT_GUARD = """
import sys
from redlock._cli import run
sys.executable = "/does/not/exist"
run.entry()
"""


def test_without_a_watchdog_nothing_is_run(servers):
    done = run([sys.executable, "-c", WITHOUT_GUARD, "job", NEW, "--", "echo", "ran"], servers.urls)
    assert (done.returncode, done.stdout) == (71, "")
    assert "redlock-guard, which would end the command in time, does not run: /does/not/exist" in done.stderr
    assert not holder_of(servers)


# No process can be had: the first one, or the second one.
NO_MORE = """
import os, sys
from redlock._cli import run
fork, left = os.fork, int(sys.argv.pop(1))
def forked():
    global left
    if not left:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    left -= 1
    return fork()
os.fork = forked
run.entry()
"""


@pytest.mark.parametrize("enough_for", [0, 1])
def test_where_no_more_processes_may_be_begun_it_says_so_and_kills_nobody(servers, enough_for):
    """Two are needed.  The script that it stands in is in its process group, and goes on."""
    program = [sys.executable, "-c", NO_MORE, str(enough_for)]
    script = ["sh", "-c", '"$@"; echo $?', "sh", *program, "job", NEW, "--", "echo", "ran"]
    done = run(script, servers.urls, start_new_session=True)
    assert (done.returncode, done.stdout) == (0, "71\n")
    assert "Resource temporarily unavailable" in done.stderr


# -- no quorum ---------------------------------------------------------------------------------------


def test_a_folder_that_is_gone(servers, tmp_path):
    """As in a shell: cron jobs go on while a deployment replaces what they stand in."""
    gone = tmp_path / "release-1"
    gone.mkdir()
    script = ["sh", "-c", 'cd "$0" && rmdir "$0" && "$@"', str(gone), *RUN, "job", NEW, "--", "echo", "ran"]
    done = run(script, servers.urls)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


# Has as many descriptors as a server with many clients, and starts another program, which inherits them.
CROWDED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(1300):
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_thousand_inherited_descriptors_are_in_nobodys_way(servers):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2048:
        missing("room for 2048 open files")
    crowded = [sys.executable, "-c", CROWDED, *RUN, "job", NEW, *PATIENT, "--"]
    done = run([*crowded, "sh", "-c", "echo ran; exit 7"], servers.urls)
    assert (done.returncode, done.stdout, done.stderr) == (7, "ran\n", "")
    done = run([*crowded, "/no/such/command"], servers.urls)
    assert done.returncode == 127, done.stderr


def test_no_quorum(servers):
    kill(servers, 3)
    done = run([*RUN, "job", *NO_WAIT, NEW, "--", "echo", "ran"], servers.urls)
    assert done.returncode == 69
    assert done.stdout == ""
    assert "3 of 5 masters did not vote" in done.stderr
    assert done.stderr.count("refused") == 3
    with started(["job", NEW, "--wait", "60", "--", "echo", "ran"], servers.urls) as process:
        assert "no quorum; waiting for one" in process.stderr.readline()
        servers.restart(0)
        assert process.wait(60) == 0
        assert line(process) == "ran"


# -- the terminal ------------------------------------------------------------------------------------


def test_a_command_that_reads_from_the_terminal_gets_it_and_each_ctrl_c_once(servers):
    """As other signals show, which redlock-run passes on in the order in which they come."""
    ask = f"read word; echo \"<$word>\"; exec {sys.executable} -c '{COUNTS}'"
    with Terminal([*RUN, "job", NEW, "--", "sh", "-c", f"echo your word; {ask}"], servers.urls) as terminal:
        terminal.read_until("your word")
        terminal.type("please\n", "<please>", "ready")
        for number in (signal.SIGTERM, signal.SIGUSR1):
            terminal.type("\x03", "SIGINT")
            terminal.process.send_signal(number)
            terminal.read_until(number.name)
        assert terminal.end() == 0
        assert terminal.seen.count("SIGINT") == 2
    eventually(lambda: nothing_left(servers))


@contextlib.contextmanager
def shell_on_a_terminal(servers, directory="/"):
    """Which ends by "exit", unless its terminal hung up."""
    command = [shutil.which("bash") or missing("bash"), "--norc", "--noediting", "-i"]
    with Terminal(command, servers.urls, cwd=directory) as terminal:
        yield terminal
        if terminal.there:
            terminal.type("exit\n")
            terminal.process.wait(30)


def wait_for_reader(terminal: Terminal) -> None:
    """Until a `sh` has the terminal and waits: a Ctrl-Z while it is given to one that is stopped stops nothing."""

    def reads() -> bool:
        ps = ["ps", "-o", "stat=,comm=", "-p", str(terminal.foreground())]
        shown = subprocess.run(ps, capture_output=True, text=True, check=False).stdout
        return shown.startswith("S") and shown.split()[-1] == "sh"

    eventually(reads, 30)


def test_ctrl_z_stops_it_all_and_the_shell_has_its_terminal_back(servers):
    command = f"{RUN_JOB} -- sh -c 'echo one; read x; echo \"<$x>\"'"
    with shell_on_a_terminal(servers) as terminal:
        terminal.type(f"{command}\n", "one\r\n")
        terminal.type("two\n", "<two>")
        terminal.type(f"{command}\n", "one\r\n")
        wait_for_reader(terminal)
        terminal.type("\x1a", "Stopped")
        terminal.type("echo $((40 + 2))\n", "42")  # the shell reads again
        terminal.type("fg\n", "fg\r\n", "redlock")
        terminal.type("three\n", "<three>")
        terminal.type("echo ended $?\n", "ended 0")


def test_a_command_that_opens_the_terminal_itself(servers):
    """As who asks for a password does, wherever the standard streams go; a Ctrl-C still comes."""
    with shell_on_a_terminal(servers) as terminal:
        asks = "'echo word? >/dev/tty; read x </dev/tty; echo \"<$x>\" >/dev/tty; read x </dev/tty'"
        terminal.type(f"{RUN_JOB} -- sh -c {asks} </dev/null >/dev/null 2>&1; echo ended $?\n", "word?\r\n")
        terminal.type("please\n", "<please>")
        terminal.type("\x03", "ended 130")


def test_one_redlock_run_in_another_on_a_terminal(servers):
    """The inner one asks the outer one for the terminal in the words of the kernel."""
    with shell_on_a_terminal(servers) as terminal:
        inner = " ".join([*RUN, "other", NEW, "-- sh -c 'echo word?; read x; echo \"<$x>\"; read y; exit 5'"])
        terminal.type(f"{RUN_JOB} -- {inner}\n", "word?\r\n")
        terminal.type("please\n", "<please>")
        terminal.type("\x1a", "Stopped")
        terminal.type("fg\n", "fg\r\n", "redlock")
        terminal.type("more\n")
        terminal.type("echo ended $?\n", "ended 5")


# As `top` does: it does not let the kernel stop it for the terminal, but puts its modes right and stops itself.
LIKE_TOP = """
import os, signal, sys, termios
def paused(*_):
    os.kill(os.getpid(), signal.SIGSTOP)
signal.signal(signal.SIGTTOU, paused)
modes = termios.tcgetattr(0)
raw = modes[:3] + [modes[3] & ~(termios.ICANON | termios.ECHO)] + modes[4:]
while True:
    try:
        termios.tcsetattr(0, termios.TCSAFLUSH, raw)
        break
    except InterruptedError:
        pass
    except termios.error:
        pass
print("on the screen", flush=True)
while (key := os.read(0, 1)) != b"q":
    print("key", key, flush=True)
termios.tcsetattr(0, termios.TCSAFLUSH, modes)
sys.exit(3)
"""


def like_top(directory: Path) -> str:
    program = directory / "like-top"
    program.write_text(LIKE_TOP, encoding="utf-8")
    return f"{sys.executable} {program}"


def test_a_command_that_stops_itself_for_the_terminal_gets_it(servers, tmp_path):
    with shell_on_a_terminal(servers) as terminal:
        terminal.type(f"{RUN_JOB} -- {like_top(tmp_path)}; echo ended $?\n", "on the screen")
        terminal.type("x", "key b'x'")
        terminal.type("q", "ended 3")
        terminal.type(f"{RUN_JOB} -- {like_top(tmp_path)}; echo ended $?\n", "on the screen")
        terminal.type("\x03", "ended 130")
    eventually(lambda: nothing_left(servers))


def test_a_ctrl_c_in_a_script_reaches_the_script(servers, tmp_path):
    """Its shell decides what becomes of it."""
    text = f"trap 'echo told' INT\n{RUN_JOB} -- sh -c 'echo begun; exec sleep 100'\necho ended $?\n"
    (tmp_path / "script").write_text(text, encoding="utf-8")
    with shell_on_a_terminal(servers, tmp_path) as terminal:
        terminal.type("sh script\n", "begun")
        terminal.type("\x03", "told", "ended 130")


def test_one_that_was_begun_in_the_background_and_is_fetched(servers, tmp_path):
    with shell_on_a_terminal(servers, tmp_path) as terminal:
        terminal.type(f"{RUN_JOB} --ttl 60 -- sh -c 'echo $$ >pid; exec {like_top(tmp_path)}' &\n")
        file = tmp_path / "pid"
        eventually(lambda: file.exists() and file.read_text("utf-8"), 30)
        eventually(lambda: state_of(int(file.read_text("utf-8"))) == "T", 30)
        terminal.type("fg; echo ended $?\n")
        terminal.read_until("on the screen", 10)  # not with the next renewal
        terminal.type("q", "ended 3")


def test_a_command_that_is_killed_while_it_is_stopped(servers):
    """Nothing has to happen to the lock for it to be seen."""
    with shell_on_a_terminal(servers) as terminal:
        terminal.type(f"{RUN_JOB} --ttl 60 -- sh -c 'echo I am $$.; read x'\n", ".\r\n")
        wait_for_reader(terminal)
        (pid,) = re.findall(r"I am (\d+)\.", terminal.seen)
        terminal.type("\x1a", "Stopped")
        os.kill(int(pid), signal.SIGKILL)
        terminal.type("fg; echo ended $?\n")
        terminal.read_until("ended 137", 10)


def test_a_job_that_no_shell_can_let_go_on_is_told(servers, tmp_path):
    """In the background of a terminal, and whose shell has gone: the kernel does not stop us, so we must not wait."""
    with shell_on_a_terminal(servers, tmp_path) as terminal:
        asks = "'trap \"echo told >said; exit 4\" HUP; echo begun >begun; read x </dev/tty; echo $? >read'"
        terminal.type(f"( {RUN_JOB} -- sh -c {asks} & )\n")
        eventually((tmp_path / "begun").exists, 30)
        eventually((tmp_path / "said").exists, 30)
        eventually(lambda: nothing_left(servers), 30)


def test_a_terminal_that_hangs_up_while_it_is_stopped(servers, tmp_path):
    """The command hears of it as it would without us; bash says SIGTERM as well, and then goes itself."""
    with shell_on_a_terminal(servers, tmp_path) as terminal:
        asks = '\'trap "echo told >said; exit 4" HUP; trap "" TERM; echo begun; while :; do read x </dev/tty || sleep 0.1; done\''
        terminal.type(f"{RUN_JOB} -- sh -c {asks} 2>errors\n", "begun\r\n")
        wait_for_reader(terminal)
        terminal.type("\x1a", "Stopped")
        terminal.hang_up()
        eventually((tmp_path / "said").exists, 30)
        eventually(lambda: nothing_left(servers), 30)
    assert (tmp_path / "errors").read_text("utf-8") == ""


def test_the_terminal_has_its_modes_back_from_a_command_that_was_killed(servers):
    with shell_on_a_terminal(servers) as terminal:
        # The shell puts them right after a program that was killed, but what it sees is one that ends.
        terminal.type(
            f"{RUN_JOB} --ttl 3 --max-hold 2 -- sh -c 'stty -icanon -echo; exec sleep 100'; stty -a; echo ended $?\n"
        )
        terminal.read_until("ended 0")
        assert " icanon" in terminal.seen
        assert " echo " in terminal.seen


# -- packed into a zip file, or into a program of its own ----------------------------------------------


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """What `python -m zipapp` makes; the libraries that it needs are beside it, as they have to be."""
    program = tmp_path_factory.mktemp("packed") / "app.pyz"
    package = Path(redlock.__file__).parent
    with zipfile.ZipFile(program, "w") as packed:
        for file in package.rglob("*"):
            if file.suffix in (".py", ".lua"):
                packed.write(file, file.relative_to(package.parent))
        packed.writestr("__main__.py", "from redlock._cli.run import entry\nentry()\n")
    return [sys.executable, "-W", "error", program.name], program.parent


# Nothing else of what PyInstaller makes matters to redlock-run: there is no interpreter to start the guard with.
FROZEN = "import sys; sys.frozen = True; sys.executable = '/bin/false'; from redlock._cli.run import entry; entry()"


@pytest.fixture(params=["zip", "frozen"])
def packed(request):
    """A redlock-run that has no file of its own, and where it is started."""
    if request.param == "zip":
        return request.getfixturevalue("archive")
    return [sys.executable, "-W", "error", "-c", FROZEN], None


def test_packed_it_runs_a_command(servers, packed):
    program, folder = packed
    show = ["sh", "-c", "cat; echo $REDLOCK_NAME; exit 7"]
    done = run([*program, "job", NEW, *PATIENT, "--", *show], servers.urls, cwd=folder, input="given ")
    assert (done.returncode, done.stdout, done.stderr) == (7, "given job\n", "")
    eventually(lambda: nothing_left(servers))


def test_packed_the_command_does_not_outlive_it(servers, packed):
    program, folder = packed
    options = ["--ttl", "3", "--grace", "0.5"]
    with started(["job", NEW, *options, "--", "sh", "-c", STUBBORN], servers.urls, program=program, cwd=folder) as job:
        ours = list(map(int, line(job).split()))
        assert ours
        job.kill()
        eventually(lambda: not any(alive(pid) for pid in ours), 30)
