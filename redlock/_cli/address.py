"""Where ``redlock-run --status-port`` listens, as an argument says it."""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

_LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>[\w.-]+|\[[\da-fA-F:.]+\]):)?(?P<port>\d{1,5})")


class Address(NamedTuple):
    """Where to listen; port 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(given: str) -> Address:
    """The address in an argument: a port of the loopback interface, or HOST:PORT."""
    found = _ADDRESS.fullmatch(given)
    if found is None or int(found["port"]) > 65535:  # noqa: PLR2004 - the last port
        raise argparse.ArgumentTypeError(
            f"{given!r}: allowed is a port, 0 to 65535 (0: any), or HOST:PORT such as 0.0.0.0:8080 or [::]:8080"
        )
    return Address((found["host"] or _LOOPBACK).strip("[]"), int(found["port"]))
