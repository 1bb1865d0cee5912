"""How the commands begin and end as programs: whatever becomes of their streams, an error of theirs, a signal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from tests.commands.terminal import Terminal
from tests.servers.commands import CHECK, RUN, environment, run
from tests.servers.needs import missing

NOBODY = "redis://127.0.0.1:1"  # answers there
ASKED = [*CHECK, "--no-probe", "--timeout", "2", NOBODY]


def shell(redirections: str, command: list[str], **options):
    """As a shell starts it, which can close streams; "true" behind it keeps it from replacing itself."""
    return run(["sh", "-c", f'"$@" {redirections}; code=$?; true; exit $code', "sh", *command], **options)


# -- an error of the program itself ------------------------------------------------------------------


@pytest.mark.parametrize("option", [[], ["--json"], ["--prometheus"], ["--acl"], ["--watch"], ["--watch", "--json"]])
def test_what_cannot_be_printed_is_unknown_and_no_warning(option):
    """The exit codes are those of Nagios (docs/redlock-check.md): 1 is WARNING, and 0 is OK; nobody has read either."""
    done = shell(">/dev/full", [*ASKED, *option])
    assert done.returncode == 3
    assert done.stderr == "redlock-check: OSError: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(("command", "code"), [(CHECK, 3), (RUN, 71)], ids=["check", "run"])
def test_help_that_cannot_be_printed(command, code):
    done = shell(">/dev/full", [*command, "--help"])
    assert done.returncode == code
    assert re.fullmatch(r"redlock-(check|run): OSError: \[Errno 28\] No space left on device\n", done.stderr)


@pytest.mark.parametrize("limit", [12, 14, 16, 20])
def test_too_few_open_files_are_no_missing_quorum(limit):
    """An error of the system (71).  Without --wait, it would wait for files that nobody closes."""
    script = f'ulimit -n {limit}; exec "$@"'
    done = run(["sh", "-c", script, "sh", *RUN, "job", "--wait", "1", "--", "true"], [NOBODY, "redis://127.0.0.1:2"])
    assert done.returncode == 71
    assert re.fullmatch(r"redlock-run: [^\n]*[Oo]pen files[^\n]* ulimit -n[^\n]*\n", done.stderr)


def test_connections_to_the_status_port_have_room_of_their_own():
    """Else many of them would leave none for those to the masters."""
    command = [*RUN, "--service", "job", "--status-port", "0", "--", "true"]
    done = run(["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", *command], [NOBODY])
    assert done.returncode == 71
    assert "and a lock on 1 master takes 44: raise the limit, with ulimit -n" in done.stderr


def test_not_even_the_complaint_can_be_printed():
    assert shell("2>/dev/full", [*CHECK, "--nonsense"]).returncode == 3
    assert shell(">/dev/full 2>&1", ASKED).returncode == 3
    assert shell("2>/dev/full", [*RUN, "--nonsense"]).returncode == 64


# What goes wrong, and what is said.  The second: as of a user who has as many processes as `ulimit -u` allows.
WRONG = [
    ("def wrong(*_, **__): raise ValueError('geheim')\nconfig.deployment = wrong", "ValueError, a defect of this program: <string>, line 2"),
    ("def wrong(_): raise RuntimeError('can not')\nthreading.Thread.start = wrong", "no thread could be started: can not"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "code"), [("check", 3), ("run", 71)])
@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=["defect", "threads"])
def test_an_error_in_the_program_is_one_line_and_says_nothing_secret(module, code, wrong, said):
    """It is neither a warning, nor "lost" (70): for redlock-run the nearest one of sysexits.h that is free."""
    broken = f"import sys, threading; from redlock._cli import config, {module} as it\n{wrong}; it.entry()"
    words = [sys.executable, "-c", broken, *(["job", "--", "true"] if module == "run" else [])]
    done = run(words, ["redis://127.0.0.1:1"])
    assert (done.returncode, done.stderr, done.stdout) == (code, f"redlock--c: {said}\n", "")


LOOK, CHAOS = [sys.executable, "-W", "error", "-m", "redlock"], [sys.executable, "-W", "error", "-m", "chaos"]


@pytest.mark.parametrize(("command", "code"), [
    (CHECK, 3), ([*CHECK, "--help"], 3), ([*CHECK, "--acl"], 3), (ASKED, 3), ([*ASKED, "--json"], 3),
    ([*ASKED, "--prometheus"], 3), ([*ASKED, "--watch"], 3), ([*ASKED, "--watch", "--json"], 3),
    ([*CHECK, "--plan", f"{NOBODY},redis://127.0.0.1:2", NOBODY], 3), ([*CHECK, "--held", NOBODY], 2),
    ([*RUN, "--help"], 71), (RUN, 64),
    (LOOK, 71), ([*LOOK, "--help"], 71), ([*LOOK, "--stop-local"], 71), ([*LOOK, "--nonsense"], 2),
    ([*CHAOS, "list"], 2), ([*CHAOS, "--help"], 2), ([*CHAOS, "run", "--help"], 2),
])  # fmt: skip
@pytest.mark.parametrize("errors_too", [False, True])
def test_whoever_reads_has_gone(command, code, errors_too, tmp_path):
    """As ``head`` does: no traceback, and another exit code than that of a success that somebody has read."""
    read, write = os.pipe()
    os.close(read)
    variables = environment(REDLOCK_LOCAL_DIR=str(tmp_path))
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=write, stderr=write if errors_too else subprocess.PIPE,
            text=True, timeout=60, check=False, env=variables,
        )  # fmt: skip
    finally:
        os.close(write)
    assert done.returncode == code
    for word in ("Traceback", "Exception", "Broken"):
        assert errors_too or word not in done.stderr


# -- characters that cannot be encoded ---------------------------------------------------------------


def test_what_cannot_be_encoded_is_printed_another_way():
    done = run([*ASKED, "redis://h\xf6st.invalid:1"], environment={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2
    assert r"h\xf6st.invalid:1" in done.stdout


@pytest.mark.parametrize("options", [["--acl", "--prefix", "\xe9"], ["--prometheus", "redis://\xe9:1"]])
def test_what_programs_read_is_utf_8_whatever_the_terminal_is(options):
    """Keys are UTF-8 (docs/reference/wire.md): a rule with another prefix would be one for other keys."""
    done = subprocess.run(
        [*ASKED, *options], capture_output=True, check=False, env=environment(PYTHONIOENCODING="ascii")
    )
    assert "\xe9".encode() in done.stdout
    assert b"redlock-check: " not in done.stderr


# -- streams that are closed -------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [">&-", "<&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing_about_the_exit_code(closed):
    done = shell(closed, ASKED)
    assert done.returncode == 2
    assert done.stderr == ""
    assert done.stdout.startswith("CRITICAL") is (">&-" not in closed)


@pytest.mark.parametrize("closed", ["", "<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_nothing_that_is_opened_gets_the_number_of_a_stream(closed, tmp_path):
    """A pipe of redlock-run would be the standard output of its command."""
    program = (
        "import json, os, sys; from redlock._cli import arguments\n"
        "def main(argv):\n"
        "    found = {'opened': os.pipe(), 'inherited': [os.get_inheritable(n) for n in range(3)],\n"
        "             'there': all((sys.stdin, sys.stdout, sys.stderr)), 'read': sys.stdin.read()}\n"
        "    print('to nobody'); print('to nobody', file=sys.stderr)\n"
        "    with open(argv[0], 'w') as file: json.dump(found, file)\n"
        "    return 5\n"
        "arguments.entry(main)"
    )
    file = tmp_path / "found"
    assert shell(closed, [sys.executable, "-c", program, str(file)], stdin=subprocess.DEVNULL).returncode == 5
    found = json.loads(file.read_text(encoding="utf-8"))
    assert min(found["opened"]) > 2
    assert found["inherited"] == [True] * 3
    assert found["there"]
    assert found["read"] == ""


# -- on a terminal -----------------------------------------------------------------------------------


@pytest.fixture
def terminal():
    with contextlib.ExitStack() as all_of_them:

        def on(command, *, controlling=False, **variables):
            one = Terminal(command, controlling=controlling, **{"TERM": "xterm"} | variables)
            return all_of_them.enter_context(one)

        yield on


HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_watch_leaves_a_cursor(terminal, number):
    watch = terminal([*ASKED, "--watch", "0.2"])
    assert HIDE in watch.read_until("CRITICAL")
    watch.process.send_signal(number)
    assert watch.end() == 128 + number
    assert watch.seen.rpartition(HIDE)[2].count(SHOW) == 1
    assert "Traceback" not in watch.seen


def bash() -> str:
    return shutil.which("bash") or missing("bash")


@pytest.fixture
def prompt(terminal):
    """A shell that a person types into."""
    return lambda **variables: terminal([bash(), "--norc", "--noediting", "-i"], controlling=True, **variables)


@pytest.mark.parametrize(("options", "variables"), [([], {}), (["--json"], {}), ([], {"TERM": "dumb"})])
def test_the_prompt_after_a_watch_stands_on_a_line_of_its_own(prompt, options, variables):
    """The terminal shows the ^C that was typed, wherever the cursor is."""
    watch = prompt(**variables)
    watch.type(" ".join([*ASKED, "--watch", "0.2", *options]) + "\n", "refused")
    watch.type("\x03")
    shown = watch.read_until("<$ >")
    assert re.search(r"\^C(\x1b\[[?\d]*[a-zA-Z])*\r\n(\x1b\[[?\d]*[a-zA-Z])*<\$ >", shown), shown


def test_a_watch_that_is_stopped_leaves_a_cursor_and_hides_it_again(prompt):
    watch = prompt()
    watch.type(" ".join([*ASKED, "--watch", "60"]) + "\n")
    assert SHOW not in watch.read_until("refused").rpartition(HIDE)[2]
    watch.type("\x1a")
    shown = watch.read_until("Stopped")
    assert HIDE not in shown
    assert SHOW in shown
    watch.type("fg\n")
    shown = watch.read_until("refused")  # the next look is a minute away
    assert HIDE in shown
    assert SHOW not in shown.rpartition(HIDE)[2]
    watch.type("\x1a")
    assert SHOW in watch.read_until("Stopped")
    watch.type("fg\n", "refused")
    watch.type("\x03", SHOW)
    watch.type("exit\n")
    watch.end()


def test_a_terminal_that_goes_ends_a_watch(terminal):
    watch = terminal([*ASKED, "--watch", "0.2"])
    watch.read_until("CRITICAL")
    watch.hang_up()  # without a signal, for it was not the one of the session
    assert watch.process.wait(20) == 3


def test_a_signal_that_is_ignored_stays_ignored(terminal):
    """As by nohup."""
    watch = terminal(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *ASKED, "--watch", "0.2"])
    watch.read_until("CRITICAL")
    watch.process.send_signal(signal.SIGHUP)
    for _ in range(2):  # goes on
        watch.read_until("\x1b[H")
    watch.process.send_signal(signal.SIGINT)
    assert watch.end() == 2


def test_a_frame_fits_on_the_terminal(terminal):
    watch = terminal([*ASKED, "redis://a-name-that-needs-much-room.example.invalid:1", "--watch", "0.2"])
    watch.read_until("CRITICAL")
    watch.process.send_signal(signal.SIGTERM)
    watch.end()
    frame = watch.seen.split("\x1b[H")[1].partition("\x1b[J")[0]
    lines = [re.sub(r"\x1b\[\d*[mK]", "", line).rstrip("\r") for line in frame.split("\n")]
    assert lines[0].startswith("Every 0.2 s")
    assert len(lines) <= 24
    assert max(map(len, lines)) < 80  # at the margin some terminals break the line, others wait
    assert any("MASTER" in line for line in lines)


def test_a_terminal_that_understands_nothing_gets_no_escape_sequence(terminal):
    watch = terminal([*ASKED, "--watch", "0.2"], TERM="dumb")
    watch.read_until("CRITICAL")
    watch.process.send_signal(signal.SIGINT)
    assert watch.end() == 2
    assert "\x1b" not in watch.seen


# -- while it is being imported ------------------------------------------------------------------------

# As the script of an installation begins; a Ctrl-C comes when `module` is about to be imported.
BEGINS = """
import signal, sys
module, command = sys.argv[1:]
sys.argv[1:] = "job", "--", "true"

class Strikes:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Strikes())
import redlock._cli
getattr(redlock._cli, command)()
"""


@pytest.mark.parametrize("module", ["redis", "tenacity", "argparse", "redlock._cli.arguments", "redlock._lock.masters"])
@pytest.mark.parametrize("command", ["redlock_check", "redlock_run"])
def test_ctrl_c_while_it_is_being_imported(command, module):
    done = run([sys.executable, "-c", BEGINS, module, command], [NOBODY])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_no_command_imports_what_it_seldom_needs():
    """redis-py imports all of opentelemetry where it is installed; HTTP is for ``--status-port`` alone."""
    found = "import redis; print([name for name in sys.modules if name.startswith(('opentelemetry.', 'http.server'))])"
    code = f"import sys, redlock._cli\ntry: redlock._cli.redlock_run()\nexcept SystemExit: {found}"
    assert run([sys.executable, "-c", code, "--help"]).stdout.endswith("[]\n")
