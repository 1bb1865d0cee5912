"""A master behind its port: it reads commands from bytes, and answers in bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import hiredis

from redlock import scripts
from redlock._core.outcomes import ErrorReply
from redlock._core.wire import Call
from tests.core.resp import encoded

if TYPE_CHECKING:
    from tests.bench.judge import Judge
    from tests.bench.wire import Tcp
    from tests.simulation.master import Master

_BY_SHA = {script.sha: script for script in scripts.ALL}
_BY_TEXT = {script.text: script for script in scripts.ALL}
_BY_FUNCTION = {script.function: script for script in scripts.ALL}


class Server:
    """One address."""

    def __init__(self, master: Master, judge: Judge) -> None:
        self.master = master
        self.judge = judge
        self.well_since = -math.inf
        self._readers: dict[Tcp, Any] = {}
        self._unaware: set[Tcp] = set()  # connections on which nothing was refused since it is a replica

    def accept(self, tcp: Tcp) -> None:
        self._readers[tcp] = hiredis.Reader()

    def gone(self, tcp: Tcp) -> None:
        """The connection has ended."""
        for listening in self.master.listening.values():
            listening.pop(tcp, None)

    def stop(self) -> None:
        """kill -9."""
        self.master.stop()
        readers, self._readers = self._readers, {}
        for tcp in readers:
            tcp.resets()

    def replicate(self) -> None:
        self.master.replicate()
        self._unaware = set(self._readers)

    def promote(self) -> None:
        """CLIENT KILL for those who do not know, and REPLICAOF NO ONE."""
        for tcp in [tcp for tcp in self._readers if tcp in self._unaware]:
            del self._readers[tcp]
            tcp.resets()
        self.master.promote()

    def hear(self, tcp: Tcp, data: bytes, sent_at: float) -> None:
        reader = self._readers.get(tcp)
        if reader is None:
            return
        reader.feed(data)
        said = bytearray()
        while (words := reader.gets()) is not False:
            answer = self._do(tcp, [word.decode("latin-1") for word in words], sent_at)
            if isinstance(answer, ErrorReply) and answer.code == "READONLY":
                self._unaware.discard(tcp)
            said += encoded(answer)
        if said:
            tcp.answer(bytes(said))

    def _do(self, tcp: Tcp, words: list[str], sent_at: float) -> Any:
        master = self.master
        match words:
            case [("EVAL" | "EVALSHA") as verb, *_] if not master.scripts:
                self.well_since = master.world.now
                return ErrorReply(f"NOPERM User locks has no permissions to run the '{verb.lower()}' command")
            case ["FCALL", what, *_] if not master.functions:
                if what != scripts.LIBRARY:  # it is asked again, over a connection that has to be made
                    self.well_since = master.world.now
                return ErrorReply("ERR Function not found")
            case ["FCALL", scripts.LIBRARY, *_]:
                return scripts.library()[1].encode()
            case ["EVAL", "return 1", *_]:  # whether it may
                return 1
            case ["EVALSHA" | "EVAL" | "FCALL" as verb, what, number, *rest]:
                script = {"EVALSHA": _BY_SHA, "EVAL": _BY_TEXT, "FCALL": _BY_FUNCTION}[verb][what]
                call = Call(script, tuple(rest[: int(number)]), tuple(rest[int(number) :]))
                return self.judge.asked(tcp.process, self, call, sent_at, text=verb != "EVALSHA")
            case ["SCRIPT", "LOAD", text]:
                if master.busy:
                    return ErrorReply("BUSY Redis is busy running a script.")
                master._cached.add(_BY_TEXT[text].sha)
                return _BY_TEXT[text].sha.encode()
            case ["INFO", _]:
                facts = master.info()
                if isinstance(facts, ErrorReply):
                    return facts
                return f"# Server\r\nrun_id:{facts.run_id}\r\nuptime_in_seconds:{facts.uptime}\r\n".encode()
            case ["CONFIG", "GET", _]:
                fsync = [b"appendonly", b"yes", b"appendfsync", b"always", b"no-appendfsync-on-rewrite", b"no"]
                return fsync if master.durable else []
            case ["TIME"]:
                master.tick()
                seconds, micros = divmod(math.floor(master.wall() * 1e6), 10**6)
                return [str(seconds).encode(), str(micros).encode()]
            case ["CLIENT", *_]:
                return "OK"
            case ["SUBSCRIBE", channel]:
                if not master.announces:
                    return ErrorReply("NOPERM this user has no permissions to access the channel used as argument")
                if tcp.dead:
                    return None
                master.listening.setdefault(channel, {})[tcp] = self
                return [b"subscribe", channel.encode("latin-1"), 1]
            case ["UNSUBSCRIBE", channel]:
                master.listening.get(channel, {}).pop(tcp, None)
                return [b"unsubscribe", channel.encode("latin-1"), 0]
        return ErrorReply(f"ERR unknown command {words[0]!r}")

    def announce(self, tcp: Tcp, channel: str, message: str) -> None:
        """To somebody who listens; `Master` calls it."""
        tcp.answer(encoded([b"message", channel.encode("latin-1"), message.encode("latin-1")]))
