"""Asking one master, on a short-lived connection of its own.

The connections of a `Masters` are not used: these questions block, and a check has to see what a client sees that
connects now. Every wait ends at one deadline. The result is what is known by then.
"""

from __future__ import annotations

import contextlib
import math
import socket
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from redis.exceptions import InvalidResponse

from redlock import _connect
from redlock._core import wire
from redlock._core.outcomes import ErrorReply
from redlock._core.rates import APART, Reading, bounds
from redlock._health import records, rights
from redlock._health.facts import ClockOffset, ClockRate, MasterFacts, RefusedCommand
from redlock._system import clock
from redlock.errors import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redlock._connect import Endpoint

# How many samples of the clock and the round trip are taken at most, and for how many seconds.
_SAMPLES = 5
_SAMPLING = 0.3

# An examination's share of the time of its check.
_OWN_SHARE = 0.95

# Error codes of a master that refuses every command, not only those that change a key.
_WORKS_FOR_NOBODY = frozenset(("BUSY", "LOADING", "MASTERDOWN"))

# Error codes that only a Redis or Valkey server gives. They prove that it is one, even if it answers nothing else.
_OF_A_SERVER = _WORKS_FOR_NOBODY | {"NOAUTH", "NOPERM", "WRONGPASS"}

_SCRIPTS = ("eval", "evalsha")  # the last command of a client of locks, as CLIENT LIST has it

_SOME = 65536  # bytes of one read
_DIGITS = 15  # of a time at most: a longer number is no time


class Examination:
    """One look at one master. Call `run` in a thread of its own. `facts` is what is known so far."""

    def __init__(self, target: Endpoint, prefix: str, name: str, patience: float, *, records: bool = False) -> None:
        self._target = target
        self._records = records
        self._prefix = prefix
        self._name = name
        self._patience = patience
        # It ends by itself before the check does. So it needs no interruption, and its last facts are reported too.
        self._deadline = clock.now() + patience * _OWN_SHARE
        self._connector: _connect.Connector | None = None
        self._sock: socket.socket | None = None
        self._stage = "connecting"
        self._first: Reading | None = None  # the quickest look at its clock
        self.done = False
        user = target.settings.get("username")
        self.facts = MasterFacts(target.name, url(target), user=str(user or "default"))

    def run(self) -> None:
        """Ask the master. Raises nothing: an error is a fact as well."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - any error is the reason why there is no answer
            self._failed(error)
        finally:
            self.done = True
            if self._sock is not None:
                self._sock.close()

    def stop(self) -> MasterFacts:
        """End the examination. Returns what is known so far. Wakes its thread, unless that is inside the resolver."""
        facts = self.facts
        if not self.done and facts.failure is None:
            facts = replace(facts, failure="timeout", text=self._no_answer())
        if not self.done:
            if self._connector is not None:
                self._connector.abort()
            if self._sock is not None:  # not closed here: its thread does that, and the number could be reused
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)
        return facts

    def _failed(self, error: Exception) -> None:
        connector = self._connector
        text = connector.words(error) if connector is not None else printable(str(error))
        kind = _connect.trouble(error, text)
        if kind == "timeout":
            text = self._no_answer()
        self._know(failure=kind, text=text)

    def _no_answer(self) -> str:
        return f"no answer within {self._patience:g} s, while {self._stage}"

    def _know(self, **facts: Any) -> None:
        self.facts = replace(self.facts, **facts)

    def _look(self) -> None:
        self._connector = connector = _connect.Connector(self._target, max(0.001, self._left()))
        self._sock = connector.bare()
        self._parser = _connect.parser()
        self._know(connected=True)
        self._stage = "answering the first commands"
        self._measure()
        self._stage = "answering INFO"
        if not self._ask_info():
            return
        self._stage = "answering what a client asks"
        self._ask_library()
        self._ask_rights()
        self._ask_needless()
        self._ask_clients()
        self._measure_rate()

    # -- what is asked -------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Measure the round trip, and the master's wall clock, corrected for half a round trip."""
        trips: list[float] = []
        clocks: list[ClockOffset] = []
        until = clock.now() + _SAMPLING
        while len(trips) < _SAMPLES and (not trips or clock.now() < until):
            sent, ours = clock.now(), time.time()
            [answer] = self._ask([("TIME",)])
            trips.append(clock.now() - sent)
            match answer:
                case ErrorReply():
                    self._refused(answer, rights.Question(("TIME",), "time"))
                case [bytes(seconds), bytes(micros)] if seconds.isdigit() and micros.isdigit():
                    theirs = int(seconds[:_DIGITS]) + int(micros[:_DIGITS]) / 1e6
                    clocks.append(ClockOffset(theirs - ours - trips[-1] / 2, trips[-1] / 2))
                    if trips[-1] == min(trips):
                        self._first = Reading(theirs, sent, sent + trips[-1])
                case _:
                    raise InvalidResponse(f"it says that the time is {answer!r:.40}")
        # The quickest sample has the most exact clock.
        best = min(clocks, key=lambda one: one.within, default=None)
        self._know(latency=statistics.median(trips), clock=best)

    def _measure_rate(self) -> None:
        """Look at its clock once more, a second after the first look, if there is time for that (R43)."""
        first = self._first
        if first is None or (pause := max(0.0, first.sent_at + APART - clock.now())) > self._left() / 2:
            return
        time.sleep(pause)
        sent = clock.now()
        [answer] = self._ask([("TIME",)])
        with contextlib.suppress(wire.BadReply):
            least, greatest = bounds(first, Reading(wire.read_time(answer), sent, clock.now()))
            self._know(rate=ClockRate((least + greatest) / 2 - 1, (greatest - least) / 2))

    def _ask_info(self) -> bool:
        [answer] = self._ask([("INFO",)])
        if isinstance(answer, ErrorReply):
            self._refused(answer, rights.Question(("INFO",), "info"))
            return self.facts.failure is None
        info = _connect.read_info(answer) if isinstance(answer, bytes) else {}
        if not info.keys() & {"redis_version", "run_id"}:
            raise InvalidResponse(f"it says of itself {answer!r:.40}")
        self._know(info={name: printable(value) for name, value in info.items()}, at=clock.now())
        return True

    def _ask_library(self) -> None:
        match self._ask([rights.LIBRARY]):
            case [bytes(said)]:
                self._know(library=printable(said.decode("utf-8", "replace")))
            case [ErrorReply(text="ERR Function not found")]:
                self._know(library="")

    def _ask_rights(self) -> None:
        functions = bool(self.facts.library)
        asked = rights.questions(self._prefix, self._name, records=self._records, functions=functions)
        answers = self._ask([one.words for one in asked])
        if not self.facts.info and all(isinstance(one, ErrorReply) and one.code not in _OF_A_SERVER for one in answers):
            raise InvalidResponse(f"to every command it answers {answers[0].text}")
        for question, answer in zip(asked, answers, strict=True):
            match question.words[0], answer:
                case (("HGETALL" | "HSET" | "HDEL"), ErrorReply(code="WRONGTYPE")):
                    pass  # clients do without it, and the finding is about the lists
                case "HGETALL", list():
                    self._know_lists(dict(zip(answer[::2], answer[1::2], strict=False)))
                case "GET", (bytes() | None | ErrorReply(code="WRONGTYPE")) if question.words[1] == wire.known_key(
                    self._prefix
                ):
                    self._know_known(answer if isinstance(answer, bytes) else b"")
                case "GET", ErrorReply(code="WRONGTYPE"):  # the key of the announcement; the other keys do not exist
                    self._know(unannounced="something that is not a string")
                case _, ErrorReply():
                    self._refused(answer, question)
                case "CONFIG", list():
                    config = dict(zip(answer[::2], answer[1::2], strict=False))
                    self._know(
                        appendonly=_text(config.get(b"appendonly")),
                        appendfsync=_text(config.get(b"appendfsync")),
                        durable=_connect.durable(answer),
                    )
                case (("GET" | "PTTL"), (bytes() | int())) if question.words[1] == wire.ANNOUNCEMENT + self._prefix:
                    self._know_announced(answer)
                case _:
                    pass

    def _ask_needless(self) -> None:
        """A user of locks has no more rights than locks need; `default` may have them all, where there is no other."""
        if self.facts.user == "default" or self.facts.failure or self.facts.refused:
            return
        asked = rights.needless(self.facts.user, self._name, functions=bool(self.facts.library))
        answers = self._ask(list(asked.values()))
        self._know(needless=tuple(right for right, answer in zip(asked, answers, strict=True) if _may(answer)))

    def _know_known(self, record: bytes) -> None:
        now = time.time() + (self.facts.clock.offset if self.facts.clock is not None else 0.0)
        self._know(known=records.look_known(self.facts.info, record, now))

    def _know_announced(self, answer: bytes | int) -> None:
        """The first answer is the value, the second its expiry."""
        if isinstance(answer, int):
            if self.facts.announced is not None:
                left = math.inf if answer == -1 else max(0, answer) / 1000
                self._know(announced=self.facts.announced._replace(left=left))
            return
        try:
            value = records.read_announced(answer)
        except ValueError:
            self._know(unannounced=repr(answer.decode("utf-8", "replace")))
        else:
            self._know(announced=wire.Announced(value) if value else None)

    def _ask_clients(self) -> None:
        """Look for clients that announce no list. Most users may not ask, and that is no finding."""
        with contextlib.suppress(OSError, InvalidResponse):
            [answer] = self._ask([("CLIENT", "LIST")])
            if isinstance(answer, bytes):
                self._know(silent=tuple(map(printable, sorted(silent(answer)))))

    def _know_lists(self, values: dict[Any, Any]) -> None:
        """Note the lists that count now, on the clock of the master, and in which ways clients take an expiry (R35)."""
        clock = self.facts.clock
        now = time.time() + (clock.offset if clock is not None else 0.0)
        entries = [records.read_fleet_entry(value) for value in values.values() if isinstance(value, bytes)]
        alive = tuple(one for one in entries if one is not None and abs(now - one.seen) <= one.life)
        ways = {way: records.read_way(values.get(way.encode()) or b"") for way in ("confirmed", "trusted")}
        used = frozenset(way for way, one in ways.items() if one is not None and abs(now - one[0]) <= one[1])
        self._know(lists=alive, ways=used, asked_at=now)

    def _refused(self, answer: ErrorReply, question: rights.Question) -> None:
        facts, text = self.facts, _connect.masked(self._target, answer.text)
        if answer.code in ("NOAUTH", "WRONGPASS"):
            self._know(failure="auth", text=text)
        elif answer.code == "NOPERM":
            word = rights.missing(question, answer.text)
            if word not in facts.missing + facts.optional:
                kind = "optional" if question.optional else "missing"
                self._know(**{kind: (*getattr(facts, kind), word)})
        elif answer.code in _WORKS_FOR_NOBODY:
            self._know(refused=facts.refused or RefusedCommand(answer.code, text))
        elif question.optional or (question.contradictory and answer.code == "ERR"):
            pass  # a client can do without the command, or it was meant to be refused (see `rights.questions`)
        elif answer.code == "ERR" or question.needs == "info":
            self._know(lacks={**facts.lacks, question.needs.upper().replace("|", " "): text})
        else:
            self._know(write=facts.write or RefusedCommand(answer.code, text))

    # -- how it is asked -----------------------------------------------------------------------------

    def _ask(self, commands: Sequence[tuple[str, ...]]) -> list[Any]:
        """Send all commands, then read one answer for each."""
        sock = self._sock
        assert sock is not None  # noqa: S101 - for the type checker
        sock.settimeout(self._left())
        _connect.send(sock, b"".join(_connect.pack(command) for command in commands))
        answers: list[Any] = []
        while len(answers) < len(commands):
            answer = self._parser.gets()
            if answer is not _connect.NOTHING:
                answers.append(answer)
                continue
            sock.settimeout(self._left())
            data = sock.recv(_SOME)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self._parser.feed(data)
        return answers

    def _left(self) -> float:
        left = self._deadline - clock.now()
        if left <= 0:
            raise TimeoutError
        return left


def silent(answer: bytes) -> list[str]:
    """The host of each connection in an answer to CLIENT LIST that has no name and ran a script last."""
    found = []
    for line in answer.decode("utf-8", "replace").splitlines():
        fields = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
        if not fields.get("name") and fields.get("cmd") in _SCRIPTS:
            found.append(fields.get("addr", "").rpartition(":")[0])
    return found


def _may(answer: Any) -> bool:
    """Whether the answer shows that the user has the right."""
    if isinstance(answer, ErrorReply):
        return answer.code == "ERR" and not answer.unknown and "unknown subcommand" not in answer.text.lower()
    return not isinstance(answer, bytes) or b"permission" not in answer  # of ACL DRYRUN


def url(target: Endpoint) -> str:
    """The address of a master, without user and password."""
    if isinstance(target.identity, str):
        return f"unix://{quote(target.identity)}"
    scheme = "rediss" if target.tls else "redis"
    database = target.settings.get("db") or 0
    return f"{scheme}://{target.address}" + (f"/{database}" if database else "")


def _text(value: bytes | None) -> str | None:
    return None if value is None else printable(value.decode("utf-8", "replace"))
