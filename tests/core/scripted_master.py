"""One simulated master whose clock stands still, for looking at one script: what a test sets and sees there are bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock._core.outcomes import ErrorReply
from tests.simulation.master import ENGINE, EPOCH, Key, Keyspace, Refused

if TYPE_CHECKING:
    from redlock._core.wire import Call


class ErrorReplied(Exception):  # noqa: N818
    """The script ended with an error reply."""


class ScriptedMaster(Keyspace):
    """``modern``: it says so, as Redis does since 7.0 and Valkey."""

    modern = True

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = int(EPOCH * 1000)
        self.version = self.version if self.modern else None
        self.published: list[tuple[bytes, bytes]] = []
        self.listeners = 0
        self.may_publish = True
        self.forbidden: set[bytes] = set()  # keys and commands
        self.info = b""  # about replication

    def run(self, call: Call) -> Any:
        """What the master would answer."""
        keys, args = ([word.encode().decode("latin-1") for word in words] for words in (call.keys, call.args))
        reply = ENGINE.run(call.script.name, call.script.text, self, keys, args)
        if isinstance(reply, ErrorReply):
            raise ErrorReplied(reply.text)
        return reply

    @property
    def values(self) -> dict[bytes, Any]:
        return {
            name.encode("latin-1"): key.value.encode("latin-1") if isinstance(key.value, str) else key.value
            for name, key in self.keys.items()
        }

    @property
    def expiries(self) -> dict[bytes, int]:
        """In ms; -1: none."""
        return {name.encode("latin-1"): self.command("PTTL", name) for name in self.keys}

    def set(self, key: str, value: str | list[bytes], ms: int = -1) -> None:
        kept = value if isinstance(value, list) else value.encode().decode("latin-1")
        self.keys[key.encode().decode("latin-1")] = Key(kept, None if ms < 0 else self.now_ms + ms)

    def get(self, key: str) -> str | None:
        value = self.values.get(key.encode())
        return None if value is None else value.decode()

    def pttl(self, key: str) -> int:
        return self.expiries.get(key.encode(), -2)

    def command(self, name: str, *args: Any) -> Any:
        if name.encode() in self.forbidden:
            raise Refused("NOPERM this user has no permissions to run the command")
        if args and str(args[0]).encode("latin-1") in self.forbidden:
            raise Refused("NOPERM No permissions to access a key")
        return super().command(name, *args)

    def _info(self, section: str) -> Any:
        return self.info.decode()

    def _publish(self, channel: str, message: str) -> Any:
        if not self.may_publish:
            raise Refused("NOPERM")
        self.published.append((channel.encode("latin-1"), message.encode("latin-1")))
        return self.listeners

    def _pubsub(self, what: str, channel: str) -> Any:
        return [channel, self.listeners]
