"""The Lua scripts: everything that a master decides by itself, one file for each verb.

Each file starts with its contract.  A master runs no other command while it runs a script.  So a script can look
who holds a key, and then act on that.  The scripts about readers begin with the text of `readers.lua`.
Those that mind records (R35) have that of `records.lua` in them, where a line names it, and those that mind tickets
(R42) that of `tickets.lua`.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files


class Script:
    """One script: its text, and the name under which a master caches it."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        # The protocol names a script by its SHA-1.  Security does not rest on it.
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"


def fingerprint(text: str) -> str:
    """A short name for ``text``, the same in every client (R34)."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_FOLDER = files(__package__)


def _text(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _load(name: str) -> Script:
    return Script(name, _text(name))


def _load_shared(name: str) -> Script:
    contract, body = _text(name).split("\n\n", 1)
    return Script(name, f"{contract}\n\n{_READERS}\n{body}")


def _load_with(name: str) -> Script:
    """With the text of each other file that a line names, and of what that names."""
    text = _text(name)
    for other in ("acquire", "acquire_recorded", "turn", "readers", "records", "tickets"):
        text = text.replace(f"-- ({other}.lua)\n", _text(other))
    return Script(name, text)


_READERS = _text("readers")


ACQUIRE = _load("acquire")
FENCE = _load("fence")
EXTEND = _load("extend")
RENEW = _load("renew")
REPAIR = _load("repair")
RELEASE = _load("release")
STATUS = _load("status")
ANNOUNCE = _load("announce")
FLEET = _load("fleet")
KNOWN = _load("known")

ACQUIRE_SHARED = _load_shared("acquire_shared")
EXTEND_SHARED = _load_shared("extend_shared")
REPAIR_SHARED = _load_shared("repair_shared")
RELEASE_SHARED = _load_shared("release_shared")
MARK = _load_shared("mark")
OCCUPY = _load("occupy")
VACATE = _load("vacate")

ACQUIRE_RECORDED = _load_with("acquire_recorded")
SETTLE = _load_with("settle")
EXTEND_RECORDED = _load_with("extend_recorded")
RENEW_RECORDED = _load_with("renew_recorded")
REPAIR_RECORDED = _load_with("repair_recorded")
RELEASE_RECORDED = _load_with("release_recorded")
OCCUPY_RECORDED = _load_with("occupy_recorded")
VACATE_RECORDED = _load_with("vacate_recorded")
ACQUIRE_SHARED_RECORDED = _load_with("acquire_shared_recorded")
SETTLE_SHARED = _load_with("settle_shared")

TICKET = _load_with("ticket")
ACQUIRE_FAIR = _load_with("acquire_fair")
ACQUIRE_FAIR_RECORDED = _load_with("acquire_fair_recorded")

EXTEND_RESUMED = _load_with("extend_resumed")
SCAN = _load("scan")
LOOK = _load("look")

# Loaded on every connection: whatever takes, keeps or gives back a lease.  A master that has to be sent one again votes
# too late, and the lease lacks its key there until it is renewed.  The others are for lists of locks.
USUAL = (
    ACQUIRE, FENCE, EXTEND, RENEW, REPAIR, RELEASE, STATUS, ANNOUNCE, FLEET, KNOWN,
    ACQUIRE_SHARED, EXTEND_SHARED, REPAIR_SHARED, RELEASE_SHARED, MARK, OCCUPY, VACATE, TICKET, ACQUIRE_FAIR,
)  # fmt: skip
# What takes the place of some of these where an expiry is confirmed by more than one clock (R35).
RECORDED = (
    ACQUIRE_RECORDED, SETTLE, EXTEND_RECORDED, RENEW_RECORDED, REPAIR_RECORDED, RELEASE_RECORDED, OCCUPY_RECORDED,
    VACATE_RECORDED, ACQUIRE_SHARED_RECORDED, SETTLE_SHARED, ACQUIRE_FAIR_RECORDED,
)  # fmt: skip
ALL = (*USUAL, *RECORDED, EXTEND_RESUMED, SCAN, LOOK)
