"""A simulated Redis master: a dict of keys, its own clock, and the very Lua files that are shipped."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from lupa.lua51 import LuaError, LuaRuntime, lua_type

from redlock import scripts
from redlock._core.outcomes import ErrorReply
from redlock._core.voters import Facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock._core.wire import Call
    from tests.bench.judge import Attempt, Judge
    from tests.simulation.world import World

# Wall time in whole seconds is what Redis computes its uptime from, so the epoch must look real.
EPOCH = 1_700_000_000.0

# What replaces the text of a script by name: how a broken variant breaks one (see variants.py).
REPLACED: dict[str, str] = {}

WRITES_THAT_NEED_MEMORY = frozenset(("SET", "ZADD", "HSET"))
WRITES = frozenset(("SET", "DEL", "PEXPIRE", "ZADD", "ZREM", "ZREMRANGEBYSCORE", "HSET", "HDEL"))


class Refused(Exception):  # noqa: N818 - an error reply, as redis.call raises it
    """A command inside a script failed, and the script with it."""


class Key:
    """A string or a hash with an expiry in the master's wall clock; ``value`` None is a key of another type.

    ``members``: it is a sorted set.  A member is a `Key` by itself: its value is its name, its expiry its score.
    """

    __slots__ = ("attempt", "changed_at", "expires", "members", "value")

    def __init__(self, value: Any, expires: int | None, attempt: Attempt | None = None, at: float = 0.0) -> None:
        self.members: dict[str, Key] | None = None
        self.value = value
        self.expires = expires  # milliseconds of the master's wall clock
        self.attempt = attempt  # for the judge: on whose behalf it was set
        self.changed_at = at  # for the judge: true time

    def __repr__(self) -> str:
        return f"{self.value}@{self.expires}"


class Keyspace:
    """Commands on string keys, with the replies that a Lua script sees."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self._numbers: dict[str, int] = {}  # of all keys that there ever were, for SCAN
        self.now_ms = 0  # stands still while a script runs, as in Redis
        self.refuses = ""  # MISCONF, OOM, or READONLY: it is a replica
        self.dirty = False  # the script that runs has written already: nothing is refused any more
        self.replid, self.replicated = "0" * 40, 0  # whose data these are, and how often it was a replica
        self.version: int | None = 0x00070000  # None: one that does not tell it to scripts, as Redis before 7

    def find(self, name: str) -> Key | None:
        key = self.keys.get(name)
        if key is not None and key.expires is not None and self.now_ms > key.expires:
            del self.keys[name]
            return None
        return key

    def command(self, name: str, *args: Any) -> Any:
        if self.refuses and not self.dirty:
            if self.refuses == "OOM" and name in WRITES_THAT_NEED_MEMORY:
                raise Refused("OOM command not allowed when used memory > 'maxmemory'.")
            if self.refuses == "READONLY" and name in WRITES:
                raise Refused("READONLY You can't write against a read only replica.")
            if self.refuses == "MISCONF" and name in WRITES:
                raise Refused("MISCONF Redis is configured to save, but is unable to persist to disk.")
        if name in WRITES:
            self.dirty = True
        try:
            method = getattr(self, _METHODS.get(name, name))
            return method(*[one if type(one) is str else _argument(one) for one in args])
        except (TypeError, ValueError, AttributeError) as error:
            raise Refused(f"ERR {name}: {error}") from error

    def _get(self, name: str) -> Any:
        key = self.find(name)
        if key is None:
            return False
        if not isinstance(key.value, str):
            raise Refused("WRONGTYPE Operation against a key holding the wrong kind of value")
        return key.value

    def _set(self, name: str, value: str, *options: str) -> Any:
        assert self.version is not None or "GET" not in options, "it is too old for that"
        before = self._get(name) if "GET" in options else True
        if "NX" in options and self.find(name) is not None:
            return False
        expires = None
        if "PX" in options:
            amount = int(options[options.index("PX") + 1])
            if amount <= 0:
                raise Refused("ERR invalid expire time in 'set' command")
            expires = self.now_ms + amount
        self.keys[name] = Key(value, expires)
        return before

    def _del(self, *names: str) -> Any:
        return sum(self.find(name) is not None and self.keys.pop(name, None) is not None for name in names)

    def _pexpire(self, name: str, amount: str) -> Any:
        key = self.find(name)
        if key is None:
            return 0
        if int(amount) <= 0:
            del self.keys[name]
        else:
            key.expires = self.now_ms + int(amount)
        return 1

    def _pttl(self, name: str) -> Any:
        key = self.find(name)
        if key is None:
            return -2
        return -1 if key.expires is None else key.expires - self.now_ms

    def _time(self) -> Any:
        return [str(self.now_ms // 1000), str(self.now_ms % 1000 * 1000)]

    def _info(self, section: str) -> Any:
        assert section == "replication"
        role = "slave" if self.refuses == "READONLY" else "master"
        second = 1 if role == "master" and self.replicated else -1
        return f"# Replication\r\nrole:{role}\r\nmaster_replid:{self.replid}\r\nsecond_repl_offset:{second}\r\n"

    # -- sorted sets ---------------------------------------------------------------------------------

    def _members(self, name: str) -> dict[str, Key]:
        key = self.find(name)
        if key is None:
            return {}
        if key.members is None:
            raise Refused("WRONGTYPE Operation against a key holding the wrong kind of value")
        return key.members

    def _within(self, name: str, least: str, most: str) -> list[Key]:
        """The members whose scores are in this range, in order."""
        found = [one for one in self._members(name).values() if _is_within(int(one.expires or 0), least, most)]
        return sorted(found, key=lambda one: (one.expires, one.value))

    def _zadd(self, name: str, score: str, member: str) -> Any:
        members = self._members(name)
        if not members:
            key = self.keys[name] = Key(None, None)
            key.members = members
        new = member not in members
        if new:
            members[member] = Key(member, int(score))
        else:
            members[member].expires = int(score)
        return int(new)

    def _zrem(self, name: str, member: str) -> Any:
        return self._remove(name, [member] if member in self._members(name) else [])

    def _remove(self, name: str, gone: list[str]) -> int:
        members = self._members(name)
        for member in gone:
            del members[member]
        if gone and not members:
            del self.keys[name]
        return len(gone)

    def _zremrangebyscore(self, name: str, least: str, most: str) -> Any:
        return self._remove(name, [str(one.value) for one in self._within(name, least, most)])

    def _zscore(self, name: str, member: str) -> Any:
        found = self._members(name).get(member)
        return False if found is None else str(found.expires)

    def _zcount(self, name: str, least: str, most: str) -> Any:
        return len(self._within(name, least, most))

    def _zrange(self, name: str, first: str, last: str, *options: str) -> Any:
        if "BYSCORE" in options:
            found = self._within(name, first, last)
            skipped, taken = map(int, options[options.index("LIMIT") + 1 :][:2])
            return _listed(found[skipped : skipped + taken], options)
        found = self._within(name, "-inf", "+inf")
        stop = int(last) + 1
        return _listed(found[int(first) : stop if stop > 0 else len(found) + stop], options)

    # -- hashes --------------------------------------------------------------------------------------

    def _hash(self, name: str) -> dict[str, str]:
        key = self.find(name)
        if key is not None and not isinstance(key.value, dict):
            raise Refused("WRONGTYPE Operation against a key holding the wrong kind of value")
        return {} if key is None else key.value

    def _hgetall(self, name: str) -> Any:
        return [word for pair in self._hash(name).items() for word in pair]

    def _hset(self, name: str, field: str, value: str) -> Any:
        values = self._hash(name)
        if not values:
            self.keys[name] = Key(values, None)
        values[field] = value
        return 1

    def _hdel(self, name: str, field: str) -> Any:
        values = self._hash(name)
        gone = values.pop(field, None) is not None
        if not values:
            self.keys.pop(name, None)
        return int(gone)

    # ------------------------------------------------------------------------------------------------

    def _scan(self, cursor: str, *options: str) -> Any:
        """One key is a step: a run has few.  Whatever comes and goes, a key that stays is found."""
        assert (options[0], options[2], options[4:]) == ("MATCH", "COUNT", ())
        for name in self.keys:
            self._numbers.setdefault(name, len(self._numbers) + 1)
        left = sorted((self._numbers[name], name) for name in self.keys if self._numbers[name] > int(cursor))
        if not left:
            return ["0", []]
        number, name = left[0]
        found = [name] if fnmatchcase(name, options[1]) and self.find(name) is not None else []
        return [str(number) if len(left) > 1 else "0", found]

    def _pubsub(self, what: str, channel: str) -> Any:
        assert what == "NUMSUB"
        return [channel, 0]

    def _publish(self, channel: str, message: str) -> Any:
        return 0  # nobody listens to a keyspace alone


def _is_within(score: int, least: str, most: str) -> bool:
    above = score > float(least[1:]) if least.startswith("(") else score >= float(least)
    return above and (score < float(most[1:]) if most.startswith("(") else score <= float(most))


def _listed(found: list[Key], options: tuple[str, ...]) -> list[str]:
    if "WITHSCORES" in options:
        return [text for one in found for text in (str(one.value), str(one.expires))]
    return [str(one.value) for one in found]


# Commands, as our scripts call them, and who carries them out.
_METHODS = {name[1:].upper(): name for name, member in vars(Keyspace).items() if callable(member)}


def _argument(value: Any) -> str:
    """Redis hands numbers to a command as text, integers without a fraction."""
    if isinstance(value, bool):
        raise TypeError("Lua redis lib command arguments must be strings or integers")
    return f"{value:.17g}"


class Engine:
    """One Lua 5.1 for all masters; a script is compiled once."""

    def __init__(self) -> None:
        # latin-1: every byte is a character, so that any token and any name passes through.
        self._lua = LuaRuntime(encoding="latin-1")
        self.keyspace: Keyspace = Keyspace()
        self._functions: dict[str, Any] = {}
        table = self._lua.table_from

        def call(name: str, *args: Any) -> Any:
            reply = self.keyspace.command(name, *args)
            if type(reply) is list:
                reply = table([table(one) if isinstance(one, list) else one for one in reply])
            return reply

        def pcall(name: str, *args: Any) -> Any:
            try:
                return call(name, *args)
            except Refused as refused:
                return table({"err": str(refused)})

        self._run: Any = self._lua.execute(_PRELUDE, call, pcall, ErrorReply)

    def run(self, script: str, text: str, keyspace: Keyspace, keys: list[str], args: list[str]) -> Any:
        """What the client receives."""
        text = REPLACED.get(script, text)
        function = self._functions.get(text)
        if function is None:
            function = self._functions[text] = self._lua.execute(f"return function(KEYS, ARGV) {text}\nend")
        self.keyspace, keyspace.dirty = keyspace, False
        try:
            reply = self._run(function, keyspace.version, len(keys), *keys, *args)
        except Refused as refused:
            refused.__traceback__ = None  # Lua keeps it until it collects, and all of this run with it
            return ErrorReply(str(refused))
        except LuaError as error:
            return ErrorReply(f"ERR {error}")
        kind, *values = reply if isinstance(reply, tuple) else (reply,)
        match kind:
            case "list":
                return [_converted(value) for value in values]
            case "error":
                return ErrorReply(values[0])
            case "status":
                return values[0].encode("latin-1")
        return _converted(values[0])


# The table of a reply ends at its first nil; which of `err` and `ok` it has decides its type.
_PRELUDE = """
local call, pcall, failed = ...
redis = {
  call = call,
  pcall = pcall,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
}
return function(script, version, n, ...)
  redis.REDIS_VERSION_NUM = version
  local all, KEYS, ARGV = {...}, {}, {}
  for i = 1, n do KEYS[i] = all[i] end
  for i = n + 1, #all do ARGV[i - n] = all[i] end
  local reply = script(KEYS, ARGV)
  if type(reply) ~= 'table' then return 'scalar', reply end
  if reply.err then return 'error', reply.err end
  if reply.ok then return 'status', reply.ok end
  -- an error that is one of several answers
  for i = 1, #reply do
    if type(reply[i]) == 'table' and reply[i].err then reply[i] = failed(reply[i].err) end
  end
  local length = 0
  while reply[length + 1] ~= nil do length = length + 1 end
  return 'list', unpack(reply, 1, length)
end
"""


def _converted(value: Any) -> Any:
    """Redis' rules: numbers lose their fraction, false is nil, true is 1."""
    if isinstance(value, ErrorReply):
        return value
    if isinstance(value, str):
        return value.encode("latin-1")
    if value is None or value is False:
        return None
    return [_converted(one) for one in value.values()] if lua_type(value) == "table" else math.trunc(value)


ENGINE = Engine()


class Master(Keyspace):
    """One server process after another behind one address."""

    def __init__(
        self, world: World, judge: Judge, index: int, *, rate: float, offset: float, age: float, durable: bool
    ) -> None:
        super().__init__()
        self.world = world
        self.judge = judge
        self.index = index
        self.durable = durable
        self.version = None if index % 3 == 2 else self.version
        self.announces = judge.parameters.announces  # else the ACL permits no channel
        self.listening: dict[str, dict[Any, Any]] = {}  # by channel
        self.up = True
        self.frozen = False
        self.waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # arrived while frozen
        self.busy = False  # BUSY: a script that does not end
        self.incarnation = 0
        self.forgot = False  # this incarnation started without the keys of the one before
        self.born_at = -age  # true time at which this incarnation started
        self.stepped = False  # its clock was set by more than P1 allows without R35
        self.jumped = 0.0  # how long its clock takes to be there again after it was set back: true seconds, in sum
        self._rate = rate
        self._offset = EPOCH + offset
        self._started = math.floor(self.wall() - age * rate)
        self.replid = f"{index:040x}"
        self._cached: set[str] = set()
        self.functions, self.scripts = False, True  # it has the function library; users may run scripts (R44)

    def wall(self) -> float:
        return self._offset + self._rate * self.world.now

    def runs(self, rate: float) -> None:
        """From now on."""
        self._offset += (self._rate - rate) * self.world.now
        self._rate = rate

    def step(self, by: float) -> None:
        self._offset += by
        self.jumped += max(0.0, -by) / self._rate

    def tick(self) -> int:
        """Read the clock, as Redis does once before each command."""
        self.now_ms = math.floor(self.wall() * 1000)
        return self.now_ms

    # -- commands ------------------------------------------------------------------------------------

    def info(self) -> Facts | ErrorReply:
        """INFO, CONFIG GET and SCRIPT LOAD of a new connection."""
        if self.busy:
            return ErrorReply("BUSY Redis is busy running a script.")
        confirm = self.judge.parameters.confirm
        self._cached.update(script.sha for script in scripts.USUAL + (scripts.RECORDED if confirm else ()))
        uptime = math.floor(self.wall()) - self._started
        return Facts(f"run-{self.index}-{self.incarnation}", uptime, self.durable, clock=self.wall())

    def evaluate(self, call: Call, attempt: Attempt | None = None, *, text: bool = False) -> Any:
        """EVALSHA, or EVAL where the client sends the text."""
        if self.busy:
            return ErrorReply("BUSY Redis is busy running a script.")
        script = call.script
        if not text and script.sha not in self._cached:
            return ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
        self._cached.add(script.sha)
        self.tick()
        before = self.judge.before(self, call)
        reply = ENGINE.run(script.name, script.text, self, list(call.keys), list(call.args))
        self.judge.after(self, call, attempt, before, reply)
        return reply

    def flush_scripts(self) -> None:
        self._cached.clear()

    def _publish(self, channel: str, message: str) -> int:
        if not self.announces:
            raise Refused("NOPERM this user has no permissions to access the channel used as argument")
        listening = self.listening.get(channel, {})
        heard = len(listening)  # one that has broken is counted once more, and found out by that
        for connection, subscriber in list(listening.items()):
            if connection.dead:
                del listening[connection]
            else:
                subscriber.announce(connection, channel, message)
        return heard

    # -- life ----------------------------------------------------------------------------------------

    def lose_locks(self) -> None:
        """Somebody deletes the lock keys, or the master evicts them; what stands beside them stays (R35)."""
        for name in [name for name in self.keys if not name.endswith((":fence", ":grant", ":tickets"))]:
            del self.keys[name]

    def replicate(self) -> None:
        """REPLICAOF, an empty server.  Its connections, its run_id and its uptime stay."""
        self.refuses, self.replid = "READONLY", "f" * 40
        self.keys.clear()

    def promote(self) -> None:
        """REPLICAOF NO ONE."""
        self.refuses = ""
        self.replicated += 1
        self.replid = f"{self.index:02x}{self.incarnation:04x}{self.replicated:034x}"
        self.forgot, self.born_at = True, self.world.now

    def stop(self) -> None:
        """kill -9: what has arrived and was not read is lost as well."""
        self.up = self.frozen = self.busy = False
        self.refuses = ""
        self.waiting.clear()
        self.listening.clear()

    def start(self, *, remember: bool) -> None:
        self.up = True
        self.incarnation += 1
        self.born_at = self.world.now
        self._started = math.floor(self.wall())
        self.replid, self.replicated = f"{self.index:02x}{self.incarnation:038x}", 0
        self._cached.clear()
        self.forgot = not remember
        self.functions = self.functions and remember
        if not remember:
            self.keys.clear()
        self.judge.started(self)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        """Everything that arrived meanwhile is carried out now, in order."""
        self.frozen = False
        waiting, self.waiting = self.waiting, []
        for action, args in waiting:
            action(*args)
