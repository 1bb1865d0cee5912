"""What the subjects need beside this library: an environment for the other ones, node's modules, a compiled loop.

All of it is made in ``.bench/``, once for each state of what it is made of.  Where something is missing (a package
index, Node, a C compiler) the subject is left out, and the report says why.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parent.parent
WORKERS: Final = ROOT / "benchmarks" / "workers"
MADE: Final = ROOT / ".bench"
_PATIENCE: Final = 300.0  # seconds for an installation
_LAST: Final = 200  # so much of what a program complained of is shown


class LeftOut(Exception):  # noqa: N818 - no error: a subject that cannot be measured here, and why
    pass


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Of several processes that need the same things, one makes them, and the others wait for it."""
    MADE.mkdir(exist_ok=True)
    with (MADE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@_one_at_a_time()
def environment() -> Path:
    """The Python of an environment with the other libraries and without this one."""
    wanted = WORKERS / "peers.txt"
    home = MADE / f"python-{sys.version_info.major}.{sys.version_info.minor}-{_digest(wanted)}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        print(f"installing {wanted.name} into {home.relative_to(ROOT)} …", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)])
        # For `benchmarks.workers`, and behind the installed packages: redlock-py's module is called redlock, too.
        (site,) = home.glob("lib/python*/site-packages")
        (site / "benchmarks.pth").write_text(f"{ROOT}\n", encoding="utf-8")
        (home / "ready").touch()
    return python


@_one_at_a_time()
def node() -> tuple[str, Path]:
    """Node, and the folder with its modules."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        raise LeftOut("there is no Node (node and npm) here")
    wanted = [WORKERS / "node" / name for name in ("package.json", "package-lock.json")]
    home = MADE / f"node-{_digest(*wanted)}"
    if not (home / "ready").exists():
        print(f"installing {wanted[0].name} into {home.relative_to(ROOT)} …", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for file in wanted:
            shutil.copy(file, home)
        _run([npm, "ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(home)], home)
        (home / "ready").touch()
    return program, home


@_one_at_a_time()
def loop() -> Path:
    """The C program."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise LeftOut("there is no C compiler (cc) here")
    source = WORKERS / "loop.c"
    program = MADE / f"loop-{_digest(source)}"
    if not program.exists():
        MADE.mkdir(exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        _run([compiler, "-O2", "-o", str(unfinished), str(source)])
        unfinished.replace(program)
    return program


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _run(command: Sequence[str], directory: Path = ROOT) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise LeftOut(f"{Path(command[0]).name} did not end within {_PATIENCE:g} s") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise LeftOut(f"{Path(command[0]).name} failed: {said[-_LAST:]}")
