"""The rights that a client needs: the smallest ACL rule, and the questions that find missing rights.

The rule and the questions are in one file, so that both cover the same rights.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from redlock import scripts
from redlock._core import wire

# Each command, and whether a client needs it. Without PUBLISH and SUBSCRIBE, waiters get no announcements and wait
# longer (R24). Without CONFIG GET, no master is exempt from quarantine (R21). Without TIME and the commands of hashes,
# clients do not announce their masters (R34); scripts that find readers ask TIME as well.
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
    "hgetall": False,
    "hset": False,
    "hdel": False,
}
# ... of readers (R33), and of writers that meet them. They are in the rule, and not asked for: most have no readers.
_OF_CONNECTIONS = ("client|setname",)  # ... so that others can tell them from earlier versions (R34)
_OF_LOOKS = ("pubsub|numsub",)  # ... which say how many wait (R40)
_OF_READERS = ("zadd", "zrem", "zremrangebyscore", "zrange", "zcount", "zscore")
_OF_SCRIPTS = ("eval", "evalsha", "script|load")  # ... of who calls no functions (R44)
_SCRIPT = "return 1"
_SCRIPT_SHA = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


class Question(NamedTuple):
    """A command that changes nothing, and the right that its refusal reveals."""

    words: tuple[str, ...]
    needs: str  # the command, as in a rule
    keys: str = ""  # the pattern that covers its key or channel
    spare: bool = False  # a client can do without the key

    @property
    def optional(self) -> bool:
        """A client can do without the right, and without the command."""
        return self.spare or not _COMMANDS[self.needs]

    @property
    def contradictory(self) -> bool:
        """Its options contradict each other, so a user who has the right is refused too."""
        return {"NX", "XX"} <= set(self.words)


def rule(prefix: str, *, database: bool = False, listing: bool = False, functions: bool = False) -> str:
    """The rule, to be appended to ``ACL SETUSER name on >password``.

    ``database``: the masters' addresses name a database, so clients need SELECT. ``listing``: it lists locks (R29).
    ``functions``: all masters have the function library, so no client needs scripts (R44).
    """
    commands = [
        *(command for command in _COMMANDS if not (functions and command in _OF_SCRIPTS)),
        *(("fcall",) if functions else ()),
        *_OF_CONNECTIONS,
        *_OF_LOOKS,
        *_OF_READERS,
        *(("select",) if database else ()),
        *(("scan",) if listing else ()),
    ]
    # Users that are there already have it and nothing else. In Redis 6.2 a new one may use all channels. Until
    # `resetchannels` a pattern of channels is refused, and until `resetkeys` one of keys beside ~*.
    patterns = dict.fromkeys(_patterns(prefix))  # each pattern once
    return " ".join(["-@all", "resetkeys", "resetchannels", *(f"+{command}" for command in commands), *patterns])


def quoted(words: str) -> str:
    """A rule as it can be pasted into a shell, and into redis-cli, which has the same single quotes.

    Without them a shell takes ``|``, ``&``, ``~`` and ``*`` for its own. No word has such a quote inside.
    """
    return " ".join(map(shlex.quote, words.split()))


def _patterns(prefix: str) -> tuple[str, str, str, str, str]:
    """The patterns for the keys of locks, of fences and of the two announcements, and for the channels."""
    pattern = _literal(prefix)
    if not pattern:  # all keys: a server refuses any other pattern beside ~*
        return "~*", "~*", "~*", "~*", "&*:released"
    announcement, fleet = _literal(wire.ANNOUNCEMENT + prefix), _literal(wire.FLEET + prefix)
    # With a hash tag in the name the fence key begins as the lock key does (docs/reference/wire.md).
    return f"~{pattern}*", f"~{{{pattern}*", f"~{announcement}", f"~{fleet}", f"&{pattern}*:released"


def _literal(text: str) -> str:
    """A pattern that matches ``text``. A rule cannot contain blanks or quotes: each of their bytes becomes a ?."""
    return "".join("?" * len(c.encode()) if c.isspace() or c == "'" else f"\\{c}" if c in "*?[]\\" else c for c in text)


def questions(prefix: str, name: str, *, records: bool = False, functions: bool = False) -> list[Question]:
    """The questions, to be asked in this order on one connection. The last two change its mode and back.

    No client uses ``name``. A server checks rights before anything else. It also checks memory, role and replicas
    before it executes a SET. So a SET with XX on a key that does not exist shows all this, and writes nothing.
    ``records``: of clients with `confirm_expiry` (R35). ``functions``: of clients that call functions (R44).
    """
    lock = prefix + name
    fence, announcement, channel = wire.fence_key(lock), wire.ANNOUNCEMENT + prefix, f"{lock}:released"
    fleet = wire.FLEET + prefix
    locks, fences, announcements, fleets, channels = _patterns(prefix)
    of_records = [Question(("SET", wire.fence_key(lock, ":grant"), "1", "XX", "PX", "1"), "set", fences)]
    return [
        *(of_records if records else ()),
        Question(("GET", announcement), "get", announcements),
        Question(("PTTL", announcement), "pttl", announcements),
        Question(("HGETALL", fleet), "hgetall", fleets),
        # Without its value the command is refused, but only after all other checks.
        Question(("HSET", fleet, name, "", name), "hset", fleets),
        Question(("HDEL", fleet, name), "hdel", fleets),
        Question(("CONFIG", "GET", "*append*"), "config|get"),
        Question(("SET", lock, name, "XX", "PX", "1"), "set", locks),
        Question(("GET", lock), "get", locks),
        Question(("PTTL", lock), "pttl", locks),
        Question(("PEXPIRE", lock, "1"), "pexpire", locks),
        Question(("DEL", lock), "del", locks),
        Question(("SET", fence, "1", "XX", "PX", "1"), "set", fences),
        Question(("GET", fence), "get", fences),
        Question(("PEXPIRE", fence, "1"), "pexpire", fences),
        Question(("GET", wire.known_key(prefix)), "get", fences, spare=True),
        # The announcement may exist and must not change. Contradictory options are refused after all other checks.
        Question(("SET", announcement, "1", "NX", "XX"), "set", announcements),
        *(() if functions else _SCRIPT_QUESTIONS),
        Question(("PUBLISH", channel, name), "publish", channels),
        Question(("SUBSCRIBE", channel), "subscribe", channels),
        Question(("UNSUBSCRIBE", channel), "unsubscribe"),
    ]


_SCRIPT_QUESTIONS = (
    Question(("EVAL", _SCRIPT, "0"), "eval"),
    Question(("SCRIPT", "LOAD", _SCRIPT), "script|load"),
    Question(("EVALSHA", _SCRIPT_SHA, "0"), "evalsha"),
)
LIBRARY = ("FCALL", scripts.LIBRARY, "0")


def library() -> str:
    """What FUNCTION LOAD takes, on each master."""
    return scripts.library()[0]


def needless(user: str, name: str, *, functions: bool) -> dict[str, tuple[str, ...]]:
    """Commands that change nothing, by the right that an answer other than NOPERM shows, and no client needs (R44).

    What would change or cost something is asked of the ACL itself, if the user may do even that.
    """
    return {
        **({f"+{one.needs}": one.words for one in _SCRIPT_QUESTIONS} if functions else {}),
        "+function": ("FUNCTION", "DELETE", name),
        "+config|set": ("CONFIG", "SET", name, "1"),
        **{
            f"+{command}": ("ACL", "DRYRUN", user, command, *args) for command, *args in (("keys", name), ("flushall",))
        },
    }


def missing(question: Question, refusal: str) -> str:
    """The part of the rule that is missing, according to ``refusal``, the text of a ``NOPERM``."""
    about_keys = " key" in refusal or " channel" in refusal
    return question.keys if about_keys and question.keys else f"+{question.needs}"
