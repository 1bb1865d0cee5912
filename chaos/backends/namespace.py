"""The backend of Linux: one private network for the run, in which packets are dropped for real.

Client c dials ``127.0.2.c``, and every master listens on all addresses.  So the address and the port of a
packet name its client and its master, and a rule can drop requests and replies of any pair, apart from each
other, without any help from the client.  The processes, the network, the mounts and what lies in shared
memory live in namespaces: when the session ends, however it does, the kernel takes everything back.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import redis

from redlock.testing import find_server

from .local import LocalRig, local_masters, relayed
from .relay import Relay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from redlock.testing import LocalMasters

    from ..plan import Link
    from ..settings import Settings
    from .rig import Rig, State

NAME: Final = "namespace"
WHAT: Final = "one private network namespace, links cut by nft; Linux"
LACKS: Final[dict[str, str]] = {}
REMARK: Final = "slow and half answers come from a relay, which is in the way only in runs that have such a fault"

# Private to the session.  All that it and its servers write to temporary places goes there: nobody else
# sees it, and nobody has to remove it.
_SCRATCH: Final = "/dev/shm"  # noqa: S108 - see above
_PREPARE: Final = (("ip", "link", "set", "lo", "up"), ("mount", "-t", "tmpfs", "tmpfs", _SCRATCH))
_NEW: Final = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# Without root first: then nothing in the session can harm the machine.
_WAYS: Final[tuple[tuple[str, ...], ...]] = (
    ("unshare", "--user", "--map-root-user", *_NEW),
    ("unshare", *_NEW),
    ("sudo", "-n", "unshare", *_NEW),
)
_PROGRAMS: Final = ("unshare", "ip", "nft", "mount")
_PROBE: Final = " && ".join((*map(" ".join, _PREPARE), "nft add table inet probe"))

_RELAYS_FROM: Final = 20_000  # plus the number of the master
_DISK: Final = "2m"
# ``lose`` strikes an established connection: what a master has received it still reads, though its side of
# the connection is reset; so does the client's, when it repeats what nobody has acknowledged.
_TABLE: Final = """
table inet chaos {
  set requests { type ipv4_addr . inet_service; }
  set replies  { type ipv4_addr . inet_service; }
  set lose     { type ipv4_addr . inet_service; }
  chain input {
    type filter hook input priority 0; policy accept;
    ip daddr . tcp dport @requests drop
    ip saddr . tcp sport @replies drop
    ip saddr . tcp sport @lose tcp flags & (syn | rst) == 0 reject with tcp reset
  }
}
"""
_SETS: Final[tuple[State, ...]] = ("requests", "replies", "lose")


@cache
def _way() -> tuple[str, ...] | str:
    """How to get into new namespaces; or why that does not work here."""
    if sys.platform != "linux":
        return f"there are no namespaces on {sys.platform}"
    missing = [program for program in _PROGRAMS if not _program(program)]
    if missing:
        return f"{', '.join(missing)} not found: install nftables, iproute2 and util-linux"
    said = ""
    for way in _WAYS:
        if way[0] == "sudo" and not shutil.which("sudo"):
            continue
        try:
            tried = subprocess.run(
                [*way, "sh", "-c", _PROBE],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
        except subprocess.TimeoutExpired:
            said = "no answer within 20 s"
            continue
        if tried.returncode == 0:
            return way
        said = tried.stderr.strip().splitlines()[-1] if tried.stderr.strip() else f"status {tried.returncode}"
    return f"no private namespace, not even with sudo: {said}"


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def unavailable() -> str | None:
    """Why it does not work here."""
    way = _way()
    return way if isinstance(way, str) else None


def command(session: Sequence[str]) -> list[str]:
    """How ``session`` is started."""
    way = _way()
    if isinstance(way, str):
        raise RuntimeError(way)  # noqa: TRY004 - that it is a text says why there is none
    kept = [f"{name}={os.environ[name]}" for name in ("PATH", "PYTHONPATH") if name in os.environ]
    return [*way, "env", *kept, f"TMPDIR={_SCRATCH}", *session]


def check(settings: Settings) -> None:
    """Raises for what these masters cannot be."""
    find_server(settings.server)


class NamespaceRig(LocalRig):
    masters: LocalMasters

    def __init__(self, settings: Settings) -> None:
        for line in _PREPARE:
            _run(*line)
        _run("nft", "-f", "-", text=_TABLE)
        super().__init__(settings, local_masters(settings))
        self._relay = Relay() if relayed(settings) else None
        self._disks: dict[int, Path] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for directory in self._disks.values():  # or it could not be removed
            _run("umount", "--lazy", str(directory))
        super().__exit__(kind, error, trace)

    def _connect(self) -> None:
        small = "disk" in self.settings.faults
        for master in range(1, self.settings.masters + 1):
            if small:
                self._give_small_disk(master)
            self._listen(master)
        if self._relay is not None:
            for client, master in self.links:
                self._relay.open((client, master), _host(client), self._port(master), self.masters.ports[master - 1])

    def _port(self, master: int) -> int:
        return self.masters.ports[master - 1] if self._relay is None else _RELAYS_FROM + master

    def urls(self, client: int) -> list[str]:
        return [
            f"redis://{self.user(client)}{_host(client)}:{self._port(master + 1)}"
            for master in range(self.settings.masters)
        ]

    def restart(self, master: int, *, keep_data: bool) -> None:
        if master in self._disks and not keep_data:  # a mounted disk cannot be thrown away, but emptied
            self.kill(master)
            shutil.rmtree(self._disks[master] / "appendonlydir", ignore_errors=True)
            keep_data = True
        super().restart(master, keep_data=keep_data)
        self._listen(master)

    def _listen(self, master: int) -> None:
        """On every address of this network."""
        self.masters.client(master - 1).config_set("bind", "0.0.0.0")  # noqa: S104 - of a network of its own

    def _apply(self, states: Mapping[Link, Mapping[State, float]]) -> None:
        rules = []
        for state in _SETS:
            pairs = [f"{_host(c)} . {self._port(m)}" for (c, m), states_ in states.items() if state in states_]
            rules.append(f"flush set inet chaos {state}")
            if pairs:
                rules.append(f"add element inet chaos {state} {{ {', '.join(pairs)} }}")
        _run("nft", "-f", "-", text="\n".join(rules) + "\n")
        if self._relay is not None:
            self._relay.change(
                {
                    link: {state: value for state, value in states_.items() if state not in _SETS}
                    for link, states_ in states.items()
                }
            )

    # -- disks -----------------------------------------------------------------------------------------

    def _give_small_disk(self, master: int) -> None:
        directory = self._disks[master] = Path(self.masters.client(master - 1).config_get("dir")["dir"])
        self.kill(master)
        shutil.rmtree(directory / "appendonlydir", ignore_errors=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(directory))
        self.masters.restart(master - 1)

    def fill_disk(self, master: int) -> None:
        with (self._disks[master] / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free_disk(self, master: int) -> None:
        (self._disks[master] / "filler").unlink()
        if self._gave_up(master):
            self.restart(master, keep_data=True)

    def _gave_up(self, master: int) -> bool:
        """With appendfsync always a master that cannot write exits. Its connections end before its process does."""
        while self.masters.alive(master - 1):
            try:
                self.masters.client(master - 1).ping()
            except redis.ResponseError:  # with everysec it lives, and may refuse writes for a moment yet
                return False
            except redis.RedisError:  # it is slow, or about to end
                time.sleep(0.01)
            else:
                return False
        return True


def _host(client: int) -> str:
    return f"127.0.2.{client}"


def _run(*command: str, text: str = "") -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def rig(settings: Settings) -> Rig:
    return NamespaceRig(settings)
