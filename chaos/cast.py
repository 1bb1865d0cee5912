"""The client processes of one run: started, stopped, killed, replaced, told what time it is and to come to an end."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

from redlock.testing._nest import Nest

from . import names
from .control import END, SETTLE, WORK, Control

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from .settings import Settings

_READY_WITHIN: Final = 60.0
_ENDED_WITHIN: Final = 30.0


class CastFailed(RuntimeError):  # noqa: N818 - named for what happened
    """A client ended by itself, or did not begin: that is a fault of the harness, or of the lock."""


class Client:
    """One process on one seat."""

    def __init__(self, seat: int, generation: int, directory: Path) -> None:
        self.seat = seat
        self.generation = generation
        self.name = names.client(seat, generation)
        self.log = directory / f"{self.name}.log"
        self.ready = directory / f"{self.name}.ready"
        self.killed = False


class _Nursery:
    """The process whose children the clients are (`chaos.clients.nursery`)."""

    def __init__(self, nest: Nest) -> None:
        self._log = nest.directory / "clients.log"
        ours, theirs = socket.socketpair()
        nest.spawn(
            [sys.executable, "-P", "-m", f"{__package__}.clients", str(nest.directory)],
            log=self._log,
            environment=os.environ,
            given=theirs.detach(),
        )
        with ours:
            self._talk = ours.makefile("rw")

    def ask(self, *what: object) -> dict[str, int | None]:
        """Returns the exit statuses of all clients, by name."""
        try:
            self._talk.write(json.dumps(what) + "\n")
            self._talk.flush()
            statuses: dict[str, int | None] = json.loads(self._talk.readline())
        except (OSError, ValueError) as error:
            raise CastFailed(f"no client can begin or end any more\n{_tail(self._log)}") from error
        return statuses


class Cast:
    """Ends with this process, whatever ends it: `redlock.testing` has a supervisor for that.

    `events` is where everybody writes what he sees, in a file of his own.
    """

    def __init__(self, settings: Settings, urls: dict[int, list[str]], *, wrong: dict[int, float]) -> None:
        self._settings = settings
        self._urls = urls
        self._uses = dict.fromkeys(urls, settings.first_list)
        self._wrong = wrong
        self._nest = Nest()
        self._controls: dict[int, Control] = {}
        self._offsets = dict(wrong)
        self._phase = WORK
        self.clients: list[Client] = []  # all that there ever were

    @property
    def events(self) -> Path:
        return self.directory / "events"

    @property
    def directory(self) -> Path:
        return self._nest.directory

    def __enter__(self) -> Self:
        try:
            (self.directory / "settings.json").write_text(self._settings.dumps())
            (self.directory / "handovers").mkdir()
            self.events.mkdir()
            for seat in self._urls:
                self._controls[seat] = Control(self.directory / f"control-{seat}", new=True)
                self._tell(seat)
            self._nursery = _Nursery(self._nest)
        except BaseException:
            self._nest.close()
            raise
        return self

    def start(self) -> None:
        """Everybody begins; returns when all are at work."""
        for seat in self._urls:
            self._start(seat, 0)
        self.wait_until_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._nest.close()

    def now_on(self, seat: int) -> Client:
        """The one that has this seat now, or had it last."""
        return next(client for client in reversed(self.clients) if client.seat == seat)

    def wait_until_ready(self) -> None:
        """Until all that were started are at work, or have been killed."""
        gives_up = time.monotonic() + _READY_WITHIN
        while waiting := [client for client in self.clients if not (client.killed or client.ready.exists())]:
            self.check()
            if time.monotonic() > gives_up:
                raise CastFailed(f"{waiting[0].name} was not ready within {_READY_WITHIN:g} s\n{_tail(waiting[0].log)}")
            time.sleep(0.01)

    # -- faults ------------------------------------------------------------------------------------------

    def stop(self, seat: int) -> None:
        self._nursery.ask("signal", self.now_on(seat).name, signal.SIGSTOP)

    def resume(self, seat: int) -> None:
        self._nursery.ask("signal", self.now_on(seat).name, signal.SIGCONT)

    def kill(self, seat: int) -> None:
        client = self.now_on(seat)
        client.killed = True
        self._nursery.ask("signal", client.name, signal.SIGKILL)

    def replace(self, seat: int, uses: tuple[int, ...] = ()) -> Client:
        """Another client comes, with the same masters, or with these."""
        self._uses[seat] = uses or self._uses[seat]
        return self._start(seat, self.now_on(seat).generation + 1)

    def shift_wall_clock(self, seat: int, seconds: float) -> None:
        self._offsets[seat] += seconds
        self._tell(seat)

    def statuses(self) -> dict[Client, int | None]:
        """With which all that there ever were have ended; None: it runs."""
        statuses = self._nursery.ask("look")
        return {client: statuses[client.name] for client in self.clients}

    # -- the course of a run -----------------------------------------------------------------------------

    def settle(self) -> None:
        """From now on short sections only, so that every lock is asked for soon."""
        self._phase = SETTLE
        for seat in self._controls:
            self._tell(seat)

    def end(self) -> None:
        """Come to an end, everybody; returns when they have."""
        self._phase = END
        for seat in self._controls:
            self._tell(seat)
        gives_up = time.monotonic() + _ENDED_WITHIN
        while alive := [client for client, status in self.statuses().items() if status is None]:
            if time.monotonic() > gives_up:
                raise CastFailed(f"{alive[0].name} did not end within {_ENDED_WITHIN:g} s\n{_tail(alive[0].log)}")
            time.sleep(0.01)
        self.check()

    def check(self) -> None:
        """Raises `CastFailed` for one that ended with an error."""
        for client, status in self.statuses().items():
            if status not in (None, 0) and not client.killed:
                raise CastFailed(f"{client.name} ended with status {status}\n{_tail(client.log)}")
            if status == 0 and self._phase != END:
                raise CastFailed(f"{client.name} ended too early\n{_tail(client.log)}")

    def _tell(self, seat: int) -> None:
        self._controls[seat].tell(self._offsets[seat], self._phase)

    def _start(self, seat: int, generation: int) -> Client:
        client = Client(seat, generation, self.directory)
        masters = (f"{names.master(number)}={self._urls[seat][number - 1]}" for number in self._uses[seat])
        self._nursery.ask("start", client.name, str(client.log), str(seat), *masters)
        self.clients.append(client)
        return client


def _tail(log: Path) -> str:
    # Who is killed at once has not even a log.
    lines = log.read_text(errors="replace").splitlines()[-30:] if log.exists() else []
    return "\n".join(f"  {line}" for line in lines or ["(it said nothing)"])
