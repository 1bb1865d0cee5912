"""Requests that a master did not carry out: why it has no vote, and what its error means.

Is it worth trying again, does it take a changed setting, and what do we tell people?  While a connection is being made,
redis-py reads the errors and takes their codes away: see `_connect.classify`.  This file imports nothing of the core:
the effects, the replies and the pipeline all need it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from redlock.errors import Outcome, printable

NEVER = float("-inf")  # `Send.sent_at` of a request that was not sent


class Failure(NamedTuple):
    """Why a master has no vote: mostly, as it has given no answer."""

    outcome: Outcome
    reason: str
    sent: bool = True  # False: not one byte of the request left, so there is nothing to roll back there
    configuration: bool = False  # waiting will not help, a setting has to be changed
    refused: bool = False  # the master is well, and objects to this request; it may accept a part of it
    of_name: bool = False  # it objects to the values at the keys of this name; other names can be locked there


class ErrorReply(NamedTuple):
    """An error of a master.  Its text begins with the code, and can be printed."""

    text: str

    @classmethod
    def read(cls, text: str) -> ErrorReply:
        """Make one of the text that a master sent; Redis before 7 wraps an error inside a script in another one."""
        wrapped = _WRAPPED.match(text)
        inner = text.removeprefix("ERR ") if wrapped is None else wrapped[1]
        if inner.startswith(_DENIED):
            return cls(f"NOPERM {printable(inner)}")
        return cls(printable(text if wrapped is None else inner))

    @property
    def code(self) -> str:
        return self.text.split(" ", 1)[0]

    @property
    def passing(self) -> bool:
        """The error may go away by itself: a release that is owed to this master is sent again."""
        return self.code in _PASSING

    @property
    def configuration(self) -> bool:
        """Waiting does not help: a setting or a key has to be changed (C1)."""
        return self.code in _CONFIGURATION or self.unknown

    @property
    def unknown(self) -> bool:
        """The master does not have that command, for example because it was renamed away."""
        # Errors without a code of their own begin with ERR, and redis-py removes that.
        return self.text.removeprefix("ERR ").startswith("unknown command")

    @property
    def withdrawn(self) -> bool:
        """The way in which the master was asked, by scripts or by functions, is not open any more (R44)."""
        return _WITHDRAWN.match(self.text) is not None

    def failure(self) -> Failure:
        code = self.code
        advice = _ADVICE.get("unknown" if self.unknown else code, "")
        text = self.text if len(self.text) <= _LONGEST else self.text[:_LONGEST] + "…"
        reason = f"{text} ({advice})" if advice else text
        refused, of_name = code not in _WHATEVER, code in _OF_NAME
        return Failure("error", reason, configuration=self.configuration, refused=refused, of_name=of_name)


# ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -OOM command not allowed …
_WRAPPED = re.compile(r"ERR Error running script .*?@user_script: ?\d+: (?:@user_script: ?\d+: )?-?(.*)", re.DOTALL)
_DENIED = ("The user executing the script can't", "ACL failure in script")  # of Redis, of Valkey
_WITHDRAWN = re.compile(r"ERR Function not found|NOPERM .* the '(evalsha|fcall)' command")
_LONGEST = 200
_PASSING = {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"}
_OF_NAME = {"WRONGTYPE", "BADFENCE", "CROSSSLOT"}
_CONFIGURATION = {"DENIED", "NOAUTH", "NOPERM", "WRONGPASS", "BADMAXTTL", "MOVED", *_OF_NAME}
_WHATEVER = _PASSING | {"NOAUTH", "WRONGPASS"}  # the master gives these to any request
_ADVICE = {
    "BADFENCE": "another program wrote that: delete the key on every master while no client holds the name",
    "BUSY": "a script has been running for too long there",
    "CROSSSLOT": "it is part of a cluster, and these names are in different slots; "
    "the masters of a quorum must be independent servers",
    "DENIED": "give the server a password, and the address as well; or set protected-mode no, if only clients can "
    "reach it",
    "LOADING": "it is reading its data after a start",
    "MISCONF": "it cannot write to its disk",
    "MOVED": "it is part of a cluster; the masters of a quorum must be independent servers",
    "NOAUTH": "it wants a password",
    "NOPERM": "its ACL forbids this user a command that locks need: redlock-check --acl prints the rule",
    "NOREPLICAS": "min-replicas-to-write is not met",
    "OOM": "it is full",
    "READONLY": "it is a replica",
    "WRONGTYPE": "something that is not a lock has this key",
    "unknown": "its configuration removed that command, which every client needs",
}
