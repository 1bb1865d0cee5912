"""The Lua scripts: everything that a master decides by itself, one file a verb.

Each file starts with its contract.  A master runs a script without interleaving it with any other
command, which is what makes "if it is mine, then" safe.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib.resources import files


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """One script: its text, and the name under which a master caches it."""

    name: str
    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        # The protocol's own name for a script, not a use of SHA-1 for security.
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


def _load(name: str) -> Script:
    return Script(name, files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8"))


ACQUIRE = _load("acquire")
FENCE = _load("fence")
EXTEND = _load("extend")
RENEW = _load("renew")
REPAIR = _load("repair")
RELEASE = _load("release")
STATUS = _load("status")
ANNOUNCE = _load("announce")

ALL = (ACQUIRE, FENCE, EXTEND, RENEW, REPAIR, RELEASE, STATUS, ANNOUNCE)
