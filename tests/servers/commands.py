"""The two commands, run as programs."""

import contextlib
import os
import subprocess
import sys

RUN = [sys.executable, "-W", "error", "-m", "redlock._cli.run"]
CHECK = [sys.executable, "-W", "error", "-m", "redlock._cli.check"]
PATIENT = ["--node-timeout", "2"]  # for a program that is new on a busy machine
NO_WAIT = ["--no-wait", *PATIENT]  # one try

# Neither it nor its child ends by SIGTERM.  It says who they are.
STUBBORN = "trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo $$ $!; while :; do sleep 0.1; done"


def environment(urls=None, **more):
    """Without what whoever runs the tests has set for masters of their own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_") and name != "COLUMNS"}
    return clean | ({"REDLOCK_MASTERS": ",".join(urls)} if urls else {}) | more


def run(command, urls=None, *, seconds=60, **options):
    """To its end; no traceback, whatever happens."""
    more = options.pop("environment", {})
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env=environment(urls, **more), **options
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def start(command, urls, **options):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, env=environment(urls), **(streams | options))


@contextlib.contextmanager
def started(arguments, urls, program=RUN, **options):
    """A `redlock-run`, and no process of it is left."""
    process = start([*program, *arguments], urls, start_new_session=True, **options)
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.communicate()


def line(process):
    """The next one of its output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill_session(leader):
    """Its processes; the command is one of them, and so is a watchdog."""
    listed = subprocess.run(["ps", "-A", "-o", "sess=,pid="], capture_output=True, text=True, check=True).stdout
    for of, pid in map(str.split, listed.splitlines()):
        if of == str(leader):
            with contextlib.suppress(ProcessLookupError):  # some go with others
                os.kill(int(pid), 9)
