"""What metrics and spans of OpenTelemetry have in common: the attributes of a server, and our version."""

from __future__ import annotations

import contextlib
from importlib import metadata


def server(master: str) -> dict[str, str | int]:
    """The attributes of a server in the semantic conventions: an address and a port, or a path."""
    host, colon, port = master.rpartition(":")
    if not (colon and port.isdecimal()):
        return {"server.address": master}
    return {"server.address": host.removeprefix("[").removesuffix("]"), "server.port": int(port)}


def version() -> str:
    """Of this library; "" if it was not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):  # the source tree is used without being installed
        return metadata.version("redlock-quorum")
    return ""
