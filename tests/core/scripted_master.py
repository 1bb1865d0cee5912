"""Just enough of a Redis server to run the scripts: the real Lua text, a dict, and a clock that stands still.

For looking at one script on one master.  Masters that fail, many of them, are in ``tests/simulation``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lupa import lua51

from redlock._core.outcomes import ErrorReply

if TYPE_CHECKING:
    from redlock._core.wire import Call


class ErrorReplied(Exception):  # noqa: N818
    """The script ended with an error reply."""


class ScriptedMaster:
    """``values`` and ``expiries`` (ms, -1: none) are open for a test to set and to look at.

    ``modern``: it says so, as Redis does since 7.0 and Valkey.
    """

    modern = True

    def __init__(self) -> None:
        self.values: dict[bytes, Any] = {}
        self.expiries: dict[bytes, int] = {}
        self.published: list[tuple[bytes, bytes]] = []
        self.listeners = 0
        self.may_publish = True
        self.forbidden: set[bytes] = set()  # keys and commands
        self.info = b""  # about replication
        # Redis hands out bytes and takes them back: no decoding, as tokens may be anything.
        self._lua = lua51.LuaRuntime(encoding=None)
        table = self._lua.eval(b"function() return {} end")()
        table[b"call"] = self._call
        table[b"pcall"] = self._pcall
        table[b"error_reply"] = lambda text: self._lua.table_from({b"err": text})
        if self.modern:
            table[b"REDIS_VERSION_NUM"] = 0x00070000
        self._lua.globals()[b"redis"] = table

    def run(self, call: Call) -> Any:
        """What the master would answer, as the protocol has it."""
        program = self._lua.eval(b"function(KEYS, ARGV)\n" + call.script.text.encode() + b"\nend")
        keys = self._lua.table_from([key.encode() for key in call.keys])
        args = self._lua.table_from([arg.encode() for arg in call.args])
        return self._answer(program(keys, args))

    def set(self, key: str, value: str | list[bytes], ms: int = -1) -> None:
        self.values[key.encode()] = value if isinstance(value, list) else value.encode()
        self.expiries[key.encode()] = ms

    def get(self, key: str) -> str | None:
        value = self.values.get(key.encode())
        return None if value is None else value.decode()

    def pttl(self, key: str) -> int:
        return self.expiries.get(key.encode(), -2)

    def _answer(self, value: Any) -> Any:
        if lua51.lua_type(value) == "table":
            if value[b"err"] is not None:
                raise ErrorReplied(value[b"err"].decode())
            return [self._element(value[index]) for index in range(1, len(value) + 1)]
        return int(value) if isinstance(value, float) else value  # Redis cuts numbers

    def _element(self, value: Any) -> Any:
        """An error that is one answer of several ends nothing."""
        try:
            return self._answer(value)
        except ErrorReplied as error:
            return ErrorReply(str(error))

    def _call(self, command: bytes, *raw: Any) -> Any:
        args = [arg if isinstance(arg, bytes) else b"%d" % arg for arg in raw]
        if command in self.forbidden:
            raise ErrorReplied("NOPERM this user has no permissions to run the command")
        if command == b"INFO":
            return self.info
        if command == b"TIME":
            return self._lua.table_from([b"1700000000", b"0"])
        key = args[0]
        if key in self.forbidden:
            raise ErrorReplied("NOPERM No permissions to access a key")
        match command:
            case b"GET":
                return self._get(key)
            case b"SET":
                options = args[2:]
                before = self._get(key) if b"GET" in options else True
                if b"NX" in options and key in self.values:
                    return False
                assert self.modern or b"GET" not in options
                self.values[key] = args[1]
                self.expiries[key] = int(options[options.index(b"PX") + 1]) if b"PX" in options else -1
                return before
            case b"DEL":
                for one in args:
                    self.expiries.pop(one, None)
                return sum(self.values.pop(one, None) is not None for one in args)
            case b"PTTL":
                return self.expiries.get(key, -2)
            case b"PEXPIRE":
                if key not in self.values:
                    return 0
                self.expiries[key] = int(args[1])
                return 1
            case b"ZRANGE" | b"ZCOUNT" | b"ZSCORE":  # no set is ever here: the simulated master has them
                assert key in self.values
                raise ErrorReplied("WRONGTYPE Operation against a key holding the wrong kind of value")
            case b"PUBLISH":
                if not self.may_publish:
                    raise ErrorReplied("NOPERM")
                self.published.append((key, args[1]))
                return self.listeners
            case b"PUBSUB":
                return self._lua.table_from([args[0], self.listeners])
        raise AssertionError(command)

    def _get(self, key: bytes) -> Any:
        value = self.values.get(key)
        if isinstance(value, list):
            raise ErrorReplied("WRONGTYPE Operation against a key holding the wrong kind of value")
        return False if value is None else value  # nil becomes false in a script

    def _pcall(self, command: bytes, *args: Any) -> Any:
        try:
            return self._call(command, *args)
        except ErrorReplied as error:
            return self._lua.table_from({b"err": str(error).encode()})
