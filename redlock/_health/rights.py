"""What a client has to be allowed to do: the smallest ACL rule, and how to find out what is missing of it.

The rule and the questions stand side by side, so that neither can forget what the other one has.
"""

from __future__ import annotations

from typing import NamedTuple

from redlock._core import wire

# Command, and whether a client can do without it: who may not PUBLISH or SUBSCRIBE is waited for longer
# (R24), without CONFIG GET an exemption does not apply (R21), TIME is only asked by the check.
_COMMANDS = {
    "set": True,
    "get": True,
    "del": True,
    "pexpire": True,
    "pttl": True,
    "eval": True,
    "evalsha": True,
    "script|load": False,
    "publish": False,
    "subscribe": False,
    "unsubscribe": False,
    "info": True,
    "time": False,
    "config|get": False,
}
_SCRIPT = "return 1"
_SCRIPT_SHA = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


class Question(NamedTuple):
    """A command that changes nothing, and what its refusal means."""

    words: tuple[str, ...]
    needs: str  # the command, as in a rule
    keys: str = ""  # the pattern that its key or channel falls under

    @property
    def optional(self) -> bool:
        """A client can do without the right."""
        return not _COMMANDS[self.needs]

    @property
    def contradictory(self) -> bool:
        """It is refused by who may do it."""
        return {"NX", "XX"} <= set(self.words)

    @property
    def expendable(self) -> bool:
        """A client can do without the command: it takes no other refusal of SCRIPT LOAD than NOPERM."""
        return self.optional and self.needs != "script|load"


def rule(prefix: str, *, database: bool = False) -> str:
    """What ``ACL SETUSER name on >password`` has to be followed by.

    ``database``: the masters' addresses name one, so it has to be selected.
    """
    commands = [*_COMMANDS, *(("select",) if database else ())]
    # New users of Redis 6.2 may use all channels, and refuse a pattern as long as they may.
    patterns = dict.fromkeys(_patterns(prefix))  # each once
    return " ".join(["-@all", "resetchannels", *(f"+{command}" for command in commands), *patterns])


def _patterns(prefix: str) -> tuple[str, str, str, str]:
    """Keys of locks, of fences, of the announcement; the channels."""
    pattern = _literal(prefix)
    if not pattern:  # a server refuses a pattern beside the one that has them all
        return "~*", "~*", "~*", "&*:released"
    announcement = _literal(wire.announcement_key(prefix))
    # With a hash tag in the name the fence key begins as the lock key does (docs/reference/wire.md).
    return f"~{pattern}*", f"~{{{pattern}*", f"~{announcement}", f"&{pattern}*:released"


def _literal(text: str) -> str:
    """A pattern for just this text.  A rule cannot have blanks: any bytes may stand for one."""
    return "".join("?" * len(c.encode()) if c.isspace() else f"\\{c}" if c in "*?[]\\" else c for c in text)


def questions(prefix: str, name: str) -> list[Question]:
    """To be asked one after the other on one connection; the last two change its mode and back.

    ``name`` is one that nobody uses.  Rights are looked at before anything else, and so are memory, role
    and replicas before a SET is executed: one that has to find a key which is not there writes nothing.
    """
    lock = prefix + name
    fence, announcement, channel = wire.fence_key(lock), wire.announcement_key(prefix), f"{lock}:released"
    locks, fences, announcements, channels = _patterns(prefix)
    return [
        Question(("GET", announcement), "get", announcements),
        Question(("CONFIG", "GET", "*append*"), "config|get"),
        Question(("SET", lock, name, "XX", "PX", "1"), "set", locks),
        Question(("GET", lock), "get", locks),
        Question(("PTTL", lock), "pttl", locks),
        Question(("PEXPIRE", lock, "1"), "pexpire", locks),
        Question(("DEL", lock), "del", locks),
        Question(("SET", fence, "1", "XX", "PX", "1"), "set", fences),
        Question(("GET", fence), "get", fences),
        Question(("PEXPIRE", fence, "1"), "pexpire", fences),
        # There may be an announcement, and it must stay: contradictory options are refused last of all.
        Question(("SET", announcement, "1", "NX", "XX"), "set", announcements),
        Question(("EVAL", _SCRIPT, "0"), "eval"),
        Question(("SCRIPT", "LOAD", _SCRIPT), "script|load"),
        Question(("EVALSHA", _SCRIPT_SHA, "0"), "evalsha"),
        Question(("PUBLISH", channel, name), "publish", channels),
        Question(("SUBSCRIBE", channel), "subscribe", channels),
        Question(("UNSUBSCRIBE", channel), "unsubscribe"),
    ]


def missing(question: Question, refusal: str) -> str:
    """The part of the rule that a ``NOPERM`` complains of."""
    about_keys = " key" in refusal or " channel" in refusal
    return question.keys if about_keys and question.keys else f"+{question.needs}"
