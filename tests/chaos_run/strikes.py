"""Makes every fault on real servers, looks at what it does, and heals it; a line of JSON for each.

A program of its own, for it has to run where the backend runs its sessions: ``strikes.py BACKEND OUT``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from chaos.backends import BACKENDS
from chaos.cast import Cast
from chaos.control import Control
from chaos.faults import FAULTS
from chaos.history import Writer
from chaos.nemesis import Nemesis
from chaos.plan import Strike
from chaos.settings import Settings
from tests.servers.punctual import Watch

# Nobody is asked to answer faster than that, or once and no more; nothing that is cut off will answer in it either.
PATIENT, BRIEF = 10.0, 0.3


def settings(backend):
    faults = ["strobe", "slow"] + [name for name in ("disk",) if name not in BACKENDS[backend].LACKS]
    return Settings(seed=1, masters=2, clients=2, workers=1, locks=1, ttl=2.0, faults=tuple(faults))


class Line:
    """One connection of a client to a master, in a protocol that needs no library."""

    def __init__(self, url, patience=PATIENT):
        host, port = url.removeprefix("redis://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=patience)

    def ask(self, command, patience=PATIENT):
        self.socket.settimeout(patience)
        self.socket.sendall(command.encode() + b"\r\n")
        answer = b""
        while not answer.endswith(b"\r\n"):
            got = self.socket.recv(1000)
            if not got:
                raise ConnectionResetError("hung up")
            answer += got
        return answer.decode().strip()

    def silent(self, command):
        """No whole answer comes, and the connection is there."""
        try:
            return f"answered {self.ask(command, BRIEF)}"
        except TimeoutError:
            return None

    def dead(self, command):
        """The connection ends."""
        try:
            return f"answered {self.ask(command)}"
        except OSError as error:
            return repr(error) if isinstance(error, TimeoutError) else None


def eventually(what, *, within=PATIENT):
    """``what()`` becomes true; errors of connections are no answer yet."""
    until = time.monotonic() + within
    while True:
        with contextlib.suppress(OSError):
            if what():
                return True
        if time.monotonic() > until:
            return False
        time.sleep(0.02)


def refuses(line, command):
    """By an answer, or by the end of the connection."""
    try:
        return not line.ask(command).startswith("+OK")
    except OSError:
        return True


# Faults that are played as another one is: these methods are told which one it is.
ALIKE = {"liar": "clock", "swing": "clock", "slewed": "slew", "ring": "halves", "early": "move", "grow": "move"}


class Scenes:
    """One method a fault.  Master 1 is struck, master 2 (but for `roll`) and client 2 are to notice nothing."""

    def __init__(self, rig, nemesis, cast):
        self.rig, self.nemesis, self.cast = rig, nemesis, cast

    def line(self, client=1, master=1):
        return Line(self.rig.urls(client)[master - 1])

    @contextlib.contextmanager
    def struck(self, fault, **what):
        strike = Strike(fault=fault, at=0.0, until=1.0, settled=1.0, **what)
        self.nemesis.strike(strike)
        try:
            yield
        finally:
            self.nemesis.heal(strike)

    def back(self, client=1, master=1):
        assert eventually(lambda: Line(self.rig.urls(client)[master - 1], BRIEF).ask("PING", BRIEF) == "+PONG"), (
            "not healed"
        )

    def kill(self):
        line = self.line()
        assert line.ask("SET k v") == "+OK"
        with self.struck("kill", masters=(1,)):
            assert line.dead("PING") is None
            assert not eventually(lambda: Line(self.rig.urls(1)[0]).ask("PING", BRIEF), within=BRIEF)
            assert self.line(1, 2).ask("PING") == "+PONG"
        self.back()
        assert self.line().ask("STRLEN k") == ":1", "it lost its data"

    def forget(self):
        assert self.line().ask("SET k v") == "+OK"
        with self.struck("forget", masters=(1,)):
            pass
        self.back()
        assert self.line().ask("STRLEN k") == ":0", "it remembers"

    def roll(self):
        for master in (1, 2):
            assert self.line(1, master).ask("SET k v") == "+OK"
        for master, other in ((1, 2), (2, 1)):
            with self.struck("roll", masters=(master,)):
                assert self.line(1, other).ask("PING") == "+PONG"
            self.back(1, master)
            assert self.line(1, master).ask("STRLEN k") == ":0", "it remembers"

    def pause(self):
        line = self.line()
        with self.struck("pause", masters=(1,)):
            assert line.silent("PING") is None
            assert self.line(1, 2).ask("PING") == "+PONG"
        self.back()

    def strobe(self):
        with self.struck("strobe", masters=(1,), seconds=0.05):
            assert self.ahead() > 0.02
        assert abs(self.ahead()) < 0.02

    def clock(self, fault):
        with self.struck(fault, masters=(1,), seconds=5.0):
            assert self.ahead() > 4.0
        assert abs(self.ahead()) < 1.0

    def slew(self, fault):
        with self.struck(fault, masters=(1,), seconds=1.0):
            assert eventually(lambda: self.ahead() > 0.5)
        gained = self.rig.masters._servers[0].clock.offset
        assert gained > 0.5
        time.sleep(0.5)
        self.rig.jump(1, -gained)
        assert self.ahead() < 0.3, "it still runs twice as fast"

    def kleppmann(self, fault):
        """First the halves, then the clock of the master that they share."""
        self.halves(fault)
        self.clock(fault)

    def evict(self):
        line = self.line()
        assert line.ask("SET redlock:k v") == line.ask("SET {redlock:k}:fence 7") == "+OK"
        with self.struck("evict", masters=(1,)):
            assert line.ask("STRLEN redlock:k") == ":0"
            assert line.ask("STRLEN {redlock:k}:fence") == ":1"

    def ahead(self):
        """The greatest offset of some: the machine may be slow, and an answer that is late makes it smaller."""
        found = []
        for _ in range(20):
            seconds, micro = self.rig.masters.client(0).time()
            found.append(seconds + micro / 1e6 - time.time())
        return max(found)

    def memory(self):
        line = self.line()
        assert line.ask("SET m v") == "+OK"
        with self.struck("memory", masters=(1,)):
            assert line.ask("SET n v").startswith("-OOM")
            assert line.ask("DEL m") == ":1"
        assert line.ask("SET n v") == "+OK"

    def disk(self):
        line = self.line()
        with self.struck("disk", masters=(1,)):
            assert eventually(lambda: refuses(line, f"SET d {'v' * 1000}")), "it goes on writing"
        self.back()
        assert eventually(lambda: self.line().ask("SET d v") == "+OK")

    def flush(self):
        line = self.line()
        sha = self.rig.masters.client(0).script_load("return 7")
        assert line.ask(f"EVALSHA {sha} 0") == ":7"
        with self.struck("flush", masters=(1,)):
            assert line.ask(f"EVALSHA {sha} 0").startswith("-NOSCRIPT")

    def library(self):
        with self.struck("library", masters=(1,)):
            assert self.line().ask("FCALL redlock_1 0").startswith("-ERR")
        said = self.line().ask("FCALL redlock_1 0")
        assert said.startswith(("$16", "-ERR unknown command")), "Redis before 7 has no functions"

    def lose(self):
        line, other = self.line(), self.line(1, 2)
        with self.struck("lose", masters=(1,)):
            assert line.dead("INCR lost") is None
            assert other.ask("PING") == "+PONG"
        self.back()
        assert self.line().ask("INCR lost") == ":2", "it was not applied"

    def slow(self):
        line = self.line()
        line.ask("PING")
        with self.struck("slow", masters=(1,), seconds=1.5), Watch() as watch:
            began, answers = time.monotonic(), b""
            for _ in range(2):
                line.socket.sendall(b"PING\r\n")
                time.sleep(0.1)
            while answers != b"+PONG\r\n" * 2:
                answers += line.socket.recv(100)
            assert 1.5 <= time.monotonic() - began < 3.0 + watch.late, "each answer is late by itself"

    def half(self):
        line = self.line()
        with self.struck("half", masters=(1,)):
            line.socket.settimeout(PATIENT)
            line.socket.sendall(b"PING\r\n")
            assert line.socket.recv(100) == b"+PO"
            assert line.silent("PING") is None
        assert line.dead("PING") is None, "what is broken stays so"
        self.back()

    def one(self):
        line, other = self.line(1), self.line(2)
        for one in (line, other):
            one.ask("PING")
        with self.struck("one", links=((1, 1),)):
            assert line.silent("INCR both") is None
            assert other.ask("STRLEN both") == ":0", "the request got through"
            assert other.ask("PING") == "+PONG"
        self.back()
        assert eventually(lambda: other.ask("STRLEN both") == ":1"), "what was sent is not lost, only late"

    def minority(self):
        with self.struck("minority", links=((1, 1), (2, 1))):
            assert eventually(lambda: self.reached() == [False, True, False, True])
        self.back()

    def oneway(self):
        for way, applied in (("requests", ":0"), ("replies", ":1")):
            line, other = self.line(1), self.line(2)
            line.ask("PING")
            with self.struck("oneway", links=((1, 1),), way=way):
                assert line.silent(f"INCR {way}") is None
                assert other.ask(f"STRLEN {way}") == applied, way
            self.back()

    def halves(self, fault):
        with self.struck(fault, links=((1, 2), (2, 1))):
            assert eventually(lambda: self.reached() == [True, False, False, True])
        for client in (1, 2):
            for master in (1, 2):
                self.back(client, master)

    def flap(self):
        for _ in range(3):
            with self.struck("flap", links=((1, 1), (2, 1))):
                assert not self.reaches(1, 1)
            self.back()

    def reached(self):
        return [self.reaches(client, master) for client in (1, 2) for master in (1, 2)]

    def reaches(self, client, master):
        try:
            return Line(self.rig.urls(client)[master - 1], BRIEF).ask("PING", BRIEF) == "+PONG"
        except OSError:
            return False

    def stop(self):
        pid = process_of(self.cast.now_on(1))
        with self.struck("stop", clients=(1,)):
            assert state(pid) == "T"
        assert eventually(lambda: state(pid) != "T")

    def crash(self):
        before = self.cast.now_on(2)
        with self.struck("crash", clients=(2,)):
            assert self.cast.statuses()[before] == -9
        after = self.cast.now_on(2)
        assert (after.name, after.seat) == ("client-2+1", 2)
        assert eventually(after.ready.exists, within=60.0)
        self.cast.check()

    def move(self, fault):
        """It comes back with another list."""
        before = self.cast.now_on(2)
        with self.struck(fault, clients=(2,), uses=(2, 1)):
            assert self.cast.statuses()[before] == -9
        after = self.cast.now_on(2)
        assert eventually(after.ready.exists, within=60.0)
        assert eventually(lambda: asked(self.cast.events / f"{after.name}.jsonl") == ["master-2", "master-1"])
        self.cast.check()

    def wall(self):
        control = Control(self.cast.directory / "control-1")
        with self.struck("wall", clients=(1,), seconds=-7.5):
            assert control.wrong_by == -7.5
        assert control.wrong_by == 0.0


def process_of(client):
    """The one that has the client's log open."""
    return next(int(fd.parts[2]) for fd in Path("/proc").glob("[0-9]*/fd/1") if fd.readlink() == client.log)


def asked(file):
    """The masters that the first one who wrote of votes has asked."""
    events = map(json.loads, file.read_text().splitlines() if file.exists() else ())
    return next(([master for master, *_ in event["votes"]] for event in events if "votes" in event), None)


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def main(backend, out):
    made = settings(backend)
    with BACKENDS[backend].rig(made) as opened:
        rig: Any = opened  # with masters that are looked at from the other side
        # One client for each seat, far away from these links: they are dialled by this program.
        with (
            Cast(made, dict.fromkeys((1, 2), rig.masters.urls), wrong=dict.fromkeys((1, 2), 0.0)) as cast,
            Path(out).open("w") as told,
        ):
            cast.start()
            record = Writer(Path(tempfile.gettempdir(), f"strikes-{os.getpid()}"), "nemesis")
            scenes = Scenes(rig, Nemesis(rig, cast, record, lambda line: None), cast)
            for name in made_by(backend):
                try:
                    alike = ALIKE.get(name, name)
                    getattr(scenes, alike)(*[name] if alike in (*ALIKE.values(), "kleppmann") else ())
                    told.write(json.dumps([name, "fine"]) + "\n")
                except Exception:  # noqa: BLE001 - told to the test
                    told.write(json.dumps([name, traceback.format_exc()]) + "\n")
                told.flush()
            os.unlink(Path(tempfile.gettempdir(), f"strikes-{os.getpid()}"))


def made_by(backend):
    return [name for name in FAULTS if name not in BACKENDS[backend].LACKS]


if __name__ == "__main__":
    main(*sys.argv[1:])
