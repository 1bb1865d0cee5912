"""In here a Docker daemon runs: what uses it must leave it as it was.  ``daemon.sh running.py`` makes that so.

A program of its own, for it has to run in the namespaces of that daemon.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.compose.programs import COMPOSE, ROOT

TRY = [str(COMPOSE / "try.sh")]
CHAOS = [
    sys.executable, "-m", "chaos", "run", "--backend", "compose", "--seed", "5", "--duration", "60", "--faults", "stop,pause",
    "--ttl", "1", "--masters", "3", "--clients", "2", "--out", str(Path(os.environ["TMPDIR"], "out")),
]  # fmt: skip
PATIENCE = 60.0


def main():
    threading.Thread(target=watch, daemon=True).start()
    print(subprocess.run(TRY, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    assert everything() == set(), "try.sh has come to its end, so now"
    runs = 1
    for command, ready, number, code in (
        (TRY, "healthy masters", signal.SIGKILL, -9),
        (TRY, "making an image", signal.SIGKILL, -9),  # Compose is about to start them
        (TRY, "healthy masters", signal.SIGTERM, 143),
        (CHAOS, " master-| client-", signal.SIGKILL, -9),
        (CHAOS, " master-| client-", signal.SIGINT, 2),
    ):
        break_off(command, ready.split("|"), number, code)
        runs += 1
        until = time.monotonic() + PATIENCE
        while everything():
            assert time.monotonic() < until, f"left behind by {command[0]}, {number.name}: {everything()}"
            time.sleep(0.2)
        print(f"nothing is left after {number.name}")
    assert len(projects) == runs, "nobody has looked for what the others have made"
    shutil.rmtree(CHAOS[-1])
    print("nothing is left")


def break_off(command, ready, number, code):
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    with process.stdout:
        for line in process.stdout:
            said += line
            if any(word in line for word in ready):
                break
        assert everything(), said
        process.send_signal(number)
        said += process.stdout.read()
    assert process.wait(PATIENCE) == code, said


# Of all that were started: the daemon may be at the service of others as well.
projects: set[str] = set()


def watch():
    while True:
        projects.update(path.name.lower() for path in folders())
        time.sleep(0.05)


def folders():
    return list(Path(os.environ["TMPDIR"]).glob("redlock-compose-*"))


def everything():
    """All that they have in the daemon, and among temporary files."""
    found = {f"folder {path.name}" for path in folders()}
    for what, name in (
        ("ps --all", "Names"),
        ("volume ls", "Name"),
        ("network ls", "Name"),
        ("image ls", "Repository"),
    ):
        command = ["docker", *what.split(), "--format", f"{{{{.{name}}}}}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found |= {f"{what} {line}" for line in listed.split() if line.startswith(tuple(projects))}
    return found


def leave():
    """A volume that a container of somebody else uses."""
    make = f"""
        "{COMPOSE}/image.sh" somebody-else >/dev/null
        docker volume create --label com.docker.compose.project="$REDLOCK_PROJECT" used >/dev/null
        docker create --volume used:/data somebody-else >/dev/null
    """
    done = subprocess.run([str(COMPOSE / "daemon.sh"), "sh", "-ec", make], check=False, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    print(done.stderr)


if __name__ == "__main__":
    leave() if sys.argv[1:] == ["leave"] else main()
