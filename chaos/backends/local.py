"""What the backends have in common: masters that are started for the run, and reached on this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from abc import abstractmethod
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ResponseError

from redlock.testing import LocalMasters

from ..faults import CLOCKS
from .rig import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from ..settings import Settings
    from .containers import Containers
    from .rig import Held

HOST: Final = "127.0.0.1"
_RELAYED: Final = ("slow", "half")
_SET: Final = "<zset>"  # what is told in place of its value
_FOR_EVER: Final = -1  # what PTTL says of a key without expiry


def held(client: Any, keys: Mapping[str, tuple[str, int]]) -> Iterator[Held]:
    """The holders of ``keys`` of one master.  Readers share a key, and each has an end of its own on the master's clock (R33).

    The mark of a waiting writer holds nothing.  A set without an expiry, or in which nobody reads any more, is told as it is.
    """
    for key, (token, left) in keys.items():
        if token != _SET:
            yield key, token, left
            continue
        with client.pipeline(transaction=True) as asked:
            (seconds, micros), members = asked.time().zrangebyscore(key, "(0", "+inf", withscores=True).execute()
        now = seconds * 1000 + micros // 1000
        reading = [(member.decode(errors="backslashreplace"), int(end) - now) for member, end in members if end > now]
        if left == _FOR_EVER or not reading:
            yield key, token, left
        for member, ends_in in reading:
            yield key, member, ends_in


def local_masters(settings: Settings) -> LocalMasters:
    """Processes of this machine."""
    return LocalMasters(
        settings.masters,
        persistence=settings.persistence,
        clock=any(name in CLOCKS for name in settings.faults),
        server=settings.server,
    )


class LocalRig(Rig):
    def __init__(self, settings: Settings, masters: LocalMasters | Containers) -> None:
        super().__init__(settings)
        self.masters = masters
        self._memory: dict[int, str] = {}

    def __enter__(self) -> Self:
        self.masters.start()
        try:
            for master in range(1, self.settings.masters + 1):
                self._begin(master)
            self._connect()
        except BaseException:
            self.masters.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.masters.stop()

    @abstractmethod
    def _connect(self) -> None:
        """The masters run: make the links."""

    def keys(self) -> list[list[Held] | None]:
        return [
            None if keys is None else list(held(self.masters.client(i), keys))
            for i, keys in enumerate(self.masters.keys("redlock:*"))
        ]

    def kill(self, master: int) -> None:
        self.masters.kill(master - 1)

    def restart(self, master: int, *, keep_data: bool) -> None:
        self.masters.restart(master - 1, keep_data=keep_data)
        self._begin(master)

    def user(self, client: int) -> str:
        """What stands before the address of a master."""
        return "locks:secret@" if client <= self.settings.functions else ""

    def _begin(self, master: int) -> None:
        """What a start does beside: users who may run no scripts need the functions (R44)."""
        if self.settings.functions:
            rule = shlex.split(_printed("--acl", "--functions"))
            self.masters.client(master - 1).execute_command("ACL", "SETUSER", "locks", "reset", "on", ">secret", *rule)
            self.load(master)

    def pause(self, master: int) -> None:
        self.masters.pause(master - 1)

    def resume(self, master: int) -> None:
        self.masters.resume(master - 1)

    def jump(self, master: int, seconds: float) -> None:
        self.masters.jump(master - 1, seconds)

    def slew(self, master: int, rate: float) -> None:
        self.masters.slew(master - 1, rate)

    def flush(self, master: int) -> None:
        self.masters.client(master - 1).script_flush()

    def load(self, master: int) -> None:
        client = self.masters.client(master - 1)
        with suppress(ResponseError):  # Redis before 7 has no functions
            client.function_load(_printed("--functions"), replace=True)
            client.client_kill_filter(_type="normal", skipme=True)  # the connections that are there go on with scripts

    def unload(self, master: int) -> None:
        with suppress(ResponseError):
            self.masters.client(master - 1).function_flush()

    def evict(self, master: int) -> None:
        client = self.masters.client(master - 1)
        for key in client.scan_iter("redlock:*"):
            client.delete(key)

    def fill_memory(self, master: int) -> None:
        client = self.masters.client(master - 1)
        self._memory[master] = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", "1")

    def free_memory(self, master: int) -> None:
        self.masters.client(master - 1).config_set("maxmemory", self._memory[master])


@cache
def _printed(*options: str) -> str:
    """The function library, or a rule of users, as an operator gets it."""
    check = [sys.executable, "-P", "-m", "redlock._cli.check", *options]
    return subprocess.run(check, capture_output=True, text=True, check=True).stdout


def relayed(settings: Settings) -> bool:
    """Whether some fault of this run can only be made by a `chaos.backends.relay.Relay`."""
    return any(name in _RELAYED for name in settings.faults)
