"""Histories written by hand: a line is a call, and the file is what `chaos.history.parse` would be given.

    tape = Tape(ttl=10)
    tape.held(1, "client-1", "A", until=11, fence=1)
    tape.release(5, "client-1", "A")
    assert tape.judge("exclusive") == []

Where nothing else is said of them, events are words: ``told("1 A held until 11, 5 A releases").judge("exclusive")``.
Token A is of client-1, B of client-2, and so on; ``A/3`` is token A in the hands of client-3.  "15 master-1 has A=5 B=-1"
is an inspection, with what PTTL says of each token; "5 stop strikes client-1+client-2 until 20" a fault, "9 stop heals client-1"
the end of one, and "9 observer looks" something else.

Times are small numbers; a boot time is a larger one, which makes no difference.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings

from chaos.history import MUST, parse
from chaos.judge import judge
from tests.properties import profile

LOCK = "a"
PROPERTY = settings(profile.PROPERTY, max_examples=300)

# Of `Tape.told`: which operation, and which phase of it.
_WORDS = {
    "asks": ("acquire", "invoke"), "is-refused": ("acquire", "fail"), "gives-up": ("acquire", "info"),
    "held": ("acquire", "ok"), "extended": ("extend", "ok"), "extends": ("extend", "invoke"),
    "fails-to-extend": ("extend", "fail"), "may-have-extended": ("extend", "info"), "resumed": ("resume", "ok"),
    "releases": ("release", "invoke"), "released": ("release", "ok"), "loses": ("lost", "info"),
    "downgrades": ("downgrade", "invoke"), "uses": ("use", "invoke"), "takes": ("resume", "invoke"), "ends": ("resume", "fail"),
    "stored": ("use", "ok"), "turned-away": ("use", "ok"), "wrote": ("use", "ok"),  # by the fenced store, and in the plain one
}  # fmt: skip

_STRUCK = {"strikes": "invoke", "heals": "ok", "misses": "fail"}  # phases of a fault


def told(story):
    return Tape().told(story)


class Tape:
    def __init__(self, *, ttl=10, locks=(LOCK,), must=MUST, **header):
        self.header: dict[str, Any] = {
            "schema": 1, "seed": 7, "masters": 5, "locks": list(locks), "clients": ["client-1", "client-2"],
            "clock": "boottime", "ttl": ttl, "must": list(must), **header,
        }  # fmt: skip
        self.lines: list[dict[str, Any]] = []

    def told(self, story):
        for sentence in story.split(", "):
            t, who, what, *words = sentence.split()
            if what == "has":
                keys = (word.split("=") for word in words)
                self.inspect(float(t), *((token, json.loads(left)) for token, left in keys), master=who)
                continue
            if what in _STRUCK:
                target: Any = (words or ["observer"])[0].split("+")
                target = target if len(target) > 1 else target[0]
                self.event(float(t), "nemesis", who, _STRUCK[what], target=target)
                if words[1:]:
                    self.event(float(words[2]), "nemesis", who, "ok", target=target)
                continue
            if what == "looks":
                self.event(float(t), "observer", "note", "info")
                continue
            token, _, number = who.partition("/")
            process = f"client-{number or 'ABCDEF'.index(token) + 1}"
            more: dict[str, Any] = dict(zip(words[::2], words[1::2], strict=True))
            fields: dict[str, Any] = {"lock": more.pop("of", LOCK)}
            if "asked" in more:
                self.event(float(more.pop("asked")), process, *_WORDS["asks"], **fields)
            if what not in ("asks", "is-refused", "gives-up"):
                fields["token"] = token
            if "fence" in more:
                fields["fence"] = int(more.pop("fence"))
            if "until" in more:
                fields["valid_until"] = float(more.pop("until"))
            if "as" in more:
                fields["mode"] = more.pop("as")
            if _WORDS[what] == ("use", "ok"):
                fields |= {"store": "plain" if what == "wrote" else "fenced", "accepted": what != "turned-away"}
            if "read" in more:
                fields["detail"] = {"read": int(more.pop("read"))}
            assert not more, sentence
            self.event(float(t), process, *_WORDS[what], **fields)
        return self

    def event(self, t, process, op, phase, **fields):
        """Returns the number of its line in the file."""
        self.lines.append({"t": t, "process": process, "op": op, "phase": phase, **fields})
        return len(self.lines) + 1

    def held(self, t, process, token, *, until, fence=None, lock=LOCK, invoked=None, **fields):
        """An acquire that ended at ``t``; it was invoked at that time, too, unless told otherwise."""
        if invoked is not None:
            self.event(invoked, process, "acquire", "invoke", lock=lock)
        return self.event(t, process, "acquire", "ok", lock=lock, token=token, valid_until=until, fence=fence, **fields)

    def release(self, t, process, token, **fields):
        return self.event(t, process, "release", "invoke", lock=LOCK, token=token, **fields)

    def lost(self, t, process, token, reason="expired"):
        return self.event(t, process, "lost", "info", lock=LOCK, token=token, reason=reason)

    def used(self, t, process, token, *, fence=1, store="plain", accepted=True, invoked=None, read=None, **fields):
        if invoked is not None:
            self.event(invoked, process, "use", "invoke", lock=LOCK, token=token, fence=fence, store=store)
        if read is not None:
            fields["detail"] = {"read": read}
        return self.event(
            t, process, "use", "ok", lock=LOCK, token=token, fence=fence, store=store, accepted=accepted, **fields
        )

    def fault(self, op, target, begin, end=None):
        self.event(begin, "nemesis", op, "invoke", target=target)
        if end is not None:
            self.event(end, "nemesis", op, "ok", target=target)

    def inspect(self, t, *keys, master="master-1"):
        found = [{"lock": LOCK, "token": token, "pttl_ms": pttl_ms} for token, pttl_ms in keys]
        return self.event(t, "observer", "inspect", "ok", target=master, keys=found)

    def bytes(self, *, footer=True):
        end = [{"events": len(self.lines)}] if footer else []
        return "".join(json.dumps(line) + "\n" for line in (self.header, *self.lines, *end)).encode()

    def history(self):
        return parse(self.bytes())

    def verdict(self, *must):
        return judge(self.history(), must or None)

    def ruling(self, name):
        return self.verdict()[name]

    def judge(self, name):
        """The lines of every violation of ``name``; the judge must not have crashed."""
        ruling = self.ruling(name)
        assert not ruling.crashed, ruling.note
        assert (ruling.outcome == "violated") == bool(ruling.violations)
        assert all(violation.sentence for violation in ruling.violations)
        return [[event.line for event in violation.events] for violation in ruling.violations]
