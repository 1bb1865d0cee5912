"""The Lua scripts: everything that a master decides by itself.

A master runs no other command while it runs a script.  So a script can look who holds a key, and then act on that.
There is a file for each verb, and one in `fragments` for each piece that several verbs or policies have in common.
Each starts with its contract.  A script is a verb with policies (R33, R35, R42), composed by two rules:

- A line ``-- (NAME.lua)`` is replaced by the fragment of that name, where it comes for the first time.
- A line that ends in ``--[POLICY]`` is there in compositions with that policy, one that ends in
  ``--[not POLICY]`` in all others.  With a comma between two of them, both must apply.

The scripts are composed at import, not when a wheel is built: then a checkout, a zip and a packed program run what
their files say.  It takes some 2 ms.  ``python -m redlock --scripts`` prints what masters get.  A composition is the
body of a function of KEYS and ARGV: it needs nothing else from outside but `redis`.  So one library has them all as
functions (R44), named by the version of the wire and the script: the clients of two versions find theirs, and loading
a library again removes no function.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pkgutil import get_data
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# For a reader (R33), in order (R42), where expiries are confirmed (R35), for a lease that was handed over (C11).
Policy: TypeAlias = Literal["shared", "fair", "recorded", "resumed"]
_POLICIES: Final = get_args(Policy)
_MODES: Final[tuple[tuple[Policy, ...], ...]] = ((), ("shared",), ("fair",))

# Of the functions (R44): raise it by one if keys, arguments, answers or effects of a function change, or one is new.
# What was released with it counts: before, and if the text alone changes, a fingerprint in a test is enough.
WIRE: Final = 1
LIBRARY: Final = f"redlock_{WIRE}"
# On a full master these work, as scripts do there: leases are extended and given back, and clients announce and ask.
# Calls that take a name are refused.  The last three change nothing.
_ON_FULL_MASTERS: Final = ("announce", "extend", "fleet", "known", "release", "renew", "vacate")
_READING: Final = ("look", "scan", "status")


class Script:
    """One script: its text, the name under which a master caches it, and the name of its function (R44)."""

    __slots__ = ("function", "name", "sha", "text", "verb")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.verb = name.partition("_")[0]
        self.text = text
        self.function = f"{LIBRARY}_{name}"
        # The protocol names a script by its SHA-1.  Security does not rest on it.
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"


def fingerprint(text: str) -> str:
    """A short name for ``text``, the same in every client (R34)."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Piece(NamedTuple):
    """Lines that always apply, or one that has a condition or is replaced by a fragment."""

    text: str
    fragment: str = ""  # its name
    when: tuple[str, ...] = ()


@cache
def _pieces(path: str) -> tuple[_Piece, ...]:
    pieces, plain = [], ""
    for line in (get_data(__name__, f"{path}.lua") or b"").decode().splitlines():
        text, _, when = line.partition(" --[")
        fragment = text[4:-5] if text.startswith("-- (") and text.endswith(".lua)") else ""
        if when or fragment:
            pieces += [_Piece(plain), _Piece(f"{text}\n", fragment, tuple(when[:-1].split(", ")) if when else ())]
            plain = ""
        else:
            plain += f"{text}\n"
    return (*pieces, _Piece(plain))


def _texts(path: str, facts: set[str], there: set[str]) -> Iterator[str]:
    """The lines that apply where ``facts`` do; ``there``: fragments that came before, which are left out."""
    for text, fragment, when in _pieces(path):
        if not facts.issuperset(when):
            continue
        if not fragment:
            yield text
        elif fragment not in there:
            there.add(fragment)
            yield from (*_texts(f"fragments/{fragment}", facts, there), "\n")


@cache
def compose(verb: str, *policies: Policy) -> Script:
    """The same object for the same policies in the same order."""
    facts = {*policies, *(f"not {one}" for one in _POLICIES if one not in policies)}
    text = "".join(_texts(verb, facts, set()))
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return Script("_".join((verb, *policies)), text)


def _each(verbs: Iterable[str], *policies: Policy) -> tuple[Script, ...]:
    """Each verb in each mode; with ``policies`` only verbs that know them: those that their own file names."""
    return tuple(
        compose(verb, *mode, *policies)
        for verb in verbs
        for mode in _MODES
        if {*mode, *policies} <= {one.removeprefix("not ") for piece in _pieces(verb) for one in piece.when}
    )


ACQUIRE = compose("acquire")
FENCE = compose("fence")
EXTEND = compose("extend")
RENEW = compose("renew")
REPAIR = compose("repair")
RELEASE = compose("release")
STATUS = compose("status")
ANNOUNCE = compose("announce")
FLEET = compose("fleet")
KNOWN = compose("known")
OCCUPY = compose("occupy")
VACATE = compose("vacate")
MARK = compose("mark")
TICKET = compose("ticket")
CONFIRM = compose("confirm")
SCAN = compose("scan")
LOOK = compose("look")

ACQUIRE_SHARED, ACQUIRE_FAIR = compose("acquire", "shared"), compose("acquire", "fair")
EXTEND_SHARED, REPAIR_SHARED, RELEASE_SHARED = (compose(verb, "shared") for verb in ("extend", "repair", "release"))
CONFIRM_SHARED, EXTEND_RESUMED = compose("confirm", "shared"), compose("extend", "resumed")
ACQUIRE_RECORDED, EXTEND_RECORDED = compose("acquire", "recorded"), compose("extend", "recorded")
RENEW_RECORDED, REPAIR_RECORDED = compose("renew", "recorded"), compose("repair", "recorded")
RELEASE_RECORDED, OCCUPY_RECORDED = compose("release", "recorded"), compose("occupy", "recorded")
VACATE_RECORDED = compose("vacate", "recorded")

# Loaded on every connection: the scripts that take, keep or give back a lease. A master that has to be sent one again
# votes too late, and the lease lacks its key there until it is renewed.  The others are for lists of locks.
_VERBS: Final = (
    "acquire", "fence", "extend", "renew", "repair", "release", "status", "announce", "fleet", "known", "mark",
    "occupy", "vacate", "ticket",
)  # fmt: skip
USUAL = _each(_VERBS)
# What takes the place of some of these where an expiry is confirmed by more than one clock (R35).
RECORDED = (*_each(_VERBS, "recorded"), *_each(("confirm",)))
ALL = (*USUAL, *RECORDED, EXTEND_RESUMED, SCAN, LOOK)


@cache
def library() -> tuple[str, str]:
    """What FUNCTION LOAD takes (R44), without comments; and its fingerprint, which its first function returns."""
    texts = []
    for script in ALL:
        flag = "no-writes" if script.verb in _READING else "allow-oom" if script.verb in _ON_FULL_MASTERS else ""
        body = "".join(f"{line}\n" for line in script.text.splitlines() if line and not line.lstrip().startswith("--"))
        texts.append(_function(script.function, body, flag))
    said = fingerprint("".join(texts))
    return "".join((f"#!lua name={LIBRARY}\n", _function(LIBRARY, f"return '{said}'\n", "no-writes"), *texts)), said


def _function(name: str, body: str, flag: str) -> str:
    flags = f"'{flag}'" if flag else ""
    given = f"function_name='{name}', flags={{{flags}}}, callback=function(KEYS, ARGV)"
    return f"redis.register_function{{{given}\n{body}end}}\n"
