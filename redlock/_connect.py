"""The border to redis-py: the identity of a master, the connection to it, and the facts that it tells then.

redis-py builds and authenticates the connection, as it knows TLS, ACL users, unix sockets and credential providers.
Then this library takes over the bare socket: a vote has our deadlines and no retries (R4). All code that depends on
the inside of redis-py is in this file. It depends on this:

- `Connection`, `SSLConnection` and `UnixDomainSocketConnection` take the settings of a client (`connection_kwargs` of
  its pool), `socket_timeout`, `socket_connect_timeout`, `retry`, `protocol` and `parser_class`.
- `connect` makes the socket, speaks AUTH, HELLO and SELECT over it, and then has it in `_sock`, from where we take it;
  `disconnect` closes it.
- A command goes through `send_packed_command`, and its answer comes through `read_response`. Both are replaced on the
  connection. `send_command(..., check_health=False)` uses the first.
- `DefaultParser` is the one of hiredis, and has its reader in `_reader` from `on_connect` on.

If one of these changes, an ImportError or a ConfigurationError says so where the masters are given
(`installed.misfit`). A change that shows only while connecting is the vote of each master, and ends an acquire at
once.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import functools
import itertools
import os
import re
import socket
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import hiredis
import redis
import redis.asyncio

from redlock import _url, options, scripts
from redlock._core import wire
from redlock._core.outcomes import ErrorReply, Failure
from redlock._core.sizes import Sizes, TooMuch
from redlock._core.voters import Facts
from redlock._system import clock, installed
from redlock.errors import ConfigurationError, printable

try:
    from redis.backoff import NoBackoff
    from redis.connection import (
        AbstractConnection,
        Connection,
        DefaultParser,
        SSLConnection,
        UnixDomainSocketConnection,
    )
    from redis.exceptions import (
        AuthenticationError,
        AuthorizationError,
        InvalidResponse,
        MovedError,
        NoPermissionError,
        ReadOnlyError,
        RedisError,
        ResponseError,
    )
    from redis.retry import Retry
except ImportError as error:
    raise ImportError(installed.misfit(error)) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redlock._core.wire import Announced, Call, Known, Lists
    from redlock.errors import Unheard

T = TypeVar("T")

# The settings of a redis client that say where the server is and who we are. Its timeouts, retries, decoding and
# pooling are not used (R4, C17).
_SETTINGS = frozenset(
    ("host", "port", "db", "path", "username", "password", "credential_provider", "client_name", "socket_type")
)

# Seconds. A connection whose packets are not confirmed for that long is given up, and a new one is tried: the host is
# gone or cut off. If only the server hangs, its kernel still confirms packets.
_UNCONFIRMED = 3.0
# Characters of an error text of redis-py or a master. It may quote a setting of any length.
_LONGEST = 500
# A password of at most that many characters may be a part of an unrelated text.
_SHORT = 3
# Characters of a host (a name in the DNS has 253) or a path (sockets have 107).
_LONGEST_NAME = 255
# The name of our connections in CLIENT LIST, unless they were given one: clients of versions before have none (R34).
CLIENT_NAME = "redlock"
# Digits of an uptime in seconds. A longer number is no uptime, and may not fit into a time.
_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One configured master: its name for people, its identity, and how to connect."""

    name: str  # given (R34), else host:port or the path of a socket; never a password
    identity: tuple[str, int] | str  # equal for two entries of the same server (C15)
    kind: Callable[..., AbstractConnection]  # a class of redis-py
    settings: dict[str, Any] = field(repr=False)
    address: str = ""  # host:port or the path, also where it has another name

    def named(self, name: str) -> Endpoint:
        return replace(self, name=name)

    @property
    def tls(self) -> bool:
        return self.kind is SSLConnection


def endpoints(masters: Iterable[object] | Mapping[str, object]) -> tuple[Endpoint, ...]:
    """The endpoint of each master. Raises `ConfigurationError`. If there are several, its text says which is wrong."""
    if isinstance(masters, Mapping):
        names = [options.master_name(name) for name in masters]
        return tuple(map(Endpoint.named, endpoints(masters.values()), names))
    several = tuple(masters)
    return tuple(_nth(index, master, len(several)) for index, master in enumerate(several))


def _nth(index: int, master: object, size: int) -> Endpoint:
    try:
        return endpoint(master)
    except ConfigurationError as error:
        if size == 1:
            raise
        host = _url.host_of(master) if isinstance(master, str) else ""
        raise ConfigurationError(f"masters[{index}]{f' ({host})' if host else ''}: {error}") from None


def endpoint(master: object) -> Endpoint:
    """The endpoint of a master, which is given as a URL or as a client of redis-py or valkey-py.

    Raises:
        ConfigurationError: it is neither, the URL cannot be read, or redis-py refuses a setting. The text contains no
            password.
    """
    if isinstance(master, str):
        scheme, settings = _url.read(master)
        return _endpoint({_KINDS[scheme]}, settings)
    if isinstance(master, _clients()):
        pool: Any = master.connection_pool
        parents = {parent.__name__ for parent in pool.connection_class.__mro__}
        if any("Sentinel" in parent for parent in parents) or hasattr(pool, "sentinel_manager"):
            raise ConfigurationError(
                "a master that Sentinel may replace can forget its locks in a failover: "
                "give the address of an independent server instead"
            )
        _refuse_other_connections(master, pool.connection_class)
        return _endpoint(parents, pool.connection_kwargs)
    raise ConfigurationError(
        f"a master is a URL, a redis.Redis or a valkey.Valkey, not {type(master).__name__}: for example "
        "'redis://10.0.0.1:6379'"
    )


def _refuse_other_connections(client: object, kind: type[Any]) -> None:
    """Raise ConfigurationError if ``client`` reaches its server by a foreign class.

    A lock would connect to the address itself: to a real server, if the client is a fake.
    """
    if kind.__module__.partition(".")[0] not in ("redis", "valkey"):
        raise ConfigurationError(
            f"a {type(client).__name__} connects by {kind.__module__}.{kind.__qualname__}, and a lock would connect to "
            "its address without that: give a URL, or a client whose connections are those of redis-py or valkey-py. "
            "For tests, redlock.testing starts real servers (LocalMasters), and has masters that need none "
            "(FixedMasters)"
        )


def _clients() -> tuple[type[Any], ...]:
    """The classes of clients whose settings are read.

    valkey-py is a fork of redis-py, with the same names inside. It is not imported here: a program that has a client
    of it has imported it.
    """
    modules = (sys.modules.get(name) for name in ("valkey.client", "valkey.asyncio.client"))
    return redis.Redis, redis.asyncio.Redis, *(module.Valkey for module in modules if module)


_KINDS = {"redis": "Connection", "rediss": "SSLConnection", "unix": "UnixDomainSocketConnection"}


def _endpoint(parents: set[str], given: dict[str, Any]) -> Endpoint:
    tls = "SSLConnection" in parents
    settings = {
        name: value
        for name, value in given.items()
        if value is not None and (name in _SETTINGS or (tls and name.startswith("ssl_")))
    }
    if "UnixDomainSocketConnection" in parents:
        path = _setting(settings, "path", "", _path)
        return _checked(Endpoint(path, path, UnixDomainSocketConnection, settings, path))
    host = _setting(settings, "host", "localhost", _host)
    port = _setting(settings, "port", 6379, _port)
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return _checked(Endpoint(name, (host.lower(), port), SSLConnection if tls else Connection, settings, name))


def _setting(settings: dict[str, Any], name: str, default: Any, read: Callable[[Any], T]) -> T:
    value = settings.setdefault(name, default)
    try:
        return read(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"{name}={options.shown(value)}: a server has no such {name}") from None


# Every error shows the name of a master. It must not forge a line, nor be more than a terminal can print.


def _host(given: Any) -> str:
    if not (isinstance(given, str) and given and given.isprintable()) or set(given) & set(" /@"):
        raise ValueError
    if len(given) > _LONGEST_NAME:
        raise ValueError
    return given


def _path(given: Any) -> str:
    path = str(Path(given).absolute())
    if not (given and path.isprintable()) or len(path) > _LONGEST_NAME:
        raise ValueError
    return path


def _port(given: Any) -> int:
    port = int(given)
    if not 0 < port < 65536:  # noqa: PLR2004 - the ports of TCP
        raise ValueError
    return port


def _checked(target: Endpoint) -> Endpoint:
    """Let redis-py check the settings now, while the error still reaches the code that gave them."""
    try:
        _build(target, 1.0)
        if target.tls:
            _check_files(target.settings)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - each setting has its own error: TypeError, ValueError, redis-py's own
        if out_of_descriptors(error):  # not a fault of the settings: connecting will show it
            return target
        raise ConfigurationError(f"the settings for {target.name} are refused: {masked(target, str(error))}") from None
    return target


def _check_files(settings: dict[str, Any]) -> None:
    """Raise ValueError for a file that TLS cannot use. redis-py would look at the files only when it connects."""
    given = {
        option: settings[option] for option in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") if settings.get(option)
    }
    for option, file in given.items():
        try:
            changed = Path(file).stat().st_mtime_ns
            Path(file).open("rb").close()
        except OSError as error:
            if out_of_descriptors(error):
                raise
            raise ValueError(f"{option}={file}: {error.strerror}") from None
        if option != "ssl_keyfile" and not _has_certificates(file, changed):
            raise ValueError(f"{option}={file}: no certificate in PEM format")
    certificate, key = given.get("ssl_certfile"), given.get("ssl_keyfile")
    if key and not certificate:
        raise ValueError(f"ssl_keyfile={key} without ssl_certfile: a key belongs to a certificate")
    if certificate:
        try:
            # Without a password pass "": with None, OpenSSL would ask for one on the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                certificate, key, settings.get("ssl_password") or ""
            )
        except ssl.SSLError as error:
            where = f"ssl_keyfile={key}" if key else f"ssl_certfile={certificate}"
            why = f" ({error.reason})" if error.reason else ""
            raise ValueError(
                f"{where}: no private key in PEM format that can be used with the certificate and ssl_password{why}"
            ) from None


@functools.lru_cache(maxsize=16)
def _has_certificates(file: str, changed: int) -> bool:  # noqa: ARG001 - so a changed file is read again
    """Whether ``file`` has certificates.

    It is cached. The file of all authorities of a system takes some ten milliseconds, and every master may name it.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        return False
    return True


# Python encodes each host name with it, and loads it for the first one. Out of descriptors it may find only a part, and
# then remembers that there is no such encoding: no name could be resolved any more.
codecs.lookup("idna")

# Its name and version for a server. redis-py would look its version up in the metadata of what is installed for each
# connection, which takes ten times as long as the rest of `_build`. Versions without this class look it up once.
_DRIVER: dict[str, Any] = (
    {"driver_info": redis.DriverInfo(lib_version=redis.__version__)} if hasattr(redis, "DriverInfo") else {}
)
_INSIDE = ("_sock", "connect", "disconnect", "read_response", "send_command", "send_packed_command")


def _build(target: Endpoint, timeout: float) -> Any:
    connection = target.kind(
        **target.settings,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,  # in RESP2 each command gets one answer, and nothing is pushed in between
        parser_class=_Parser,
        **_DRIVER,
    )
    missing = [name for name in _INSIDE if not hasattr(connection, name)]
    if missing:
        raise ConfigurationError(installed.misfit(f"its connections have no {', '.join(missing)}"))
    connection.send_packed_command = functools.partial(_send, connection)  # type: ignore[method-assign]
    connection.read_response = _Answers(connection.read_response).read  # type: ignore[method-assign]
    return connection


class _Answers:
    """The answers of a connection that is being made.

    In protected mode a master says so, to every command, and hangs up.  redis-py first asks what may be refused,
    and passes over that answer.
    """

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self._denied = ""

    def read(self, *args: Any, **options: Any) -> Any:
        try:
            return self._read(*args, **options)
        except ResponseError as error:
            if str(error).startswith("DENIED"):
                self._denied = str(error)
            raise
        except redis.ConnectionError as error:
            if self._denied:
                raise redis.ConnectionError(self._denied) from error
            raise


def _send(connection: Any, packed: Any, check_health: bool = False) -> None:  # noqa: ARG001 - as redis-py calls it
    for part in (packed,) if isinstance(packed, (bytes, str)) else packed:
        if not send(connection._sock, part):  # noqa: SLF001
            return


def send(sock: socket.socket, data: Any) -> bool:
    """Send ``data``. False: the master hung up. The caller must read the answer in any case.

    To hang up is no error yet: the master may have said why, and only a read shows that. In TLS 1.3 it may want another
    certificate. In plain text it may accept no more clients.
    """
    try:
        sock.sendall(data)
    except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return False
    return True


def masked(target: Endpoint, text: str) -> str:
    """``text`` without the password, on one line of limited length that can be printed."""
    if "AUTH" in text and "args beginning with" in text:
        # The rest of its text quotes our password, cut at some place: so the password cannot be replaced in it.
        return "it does not know the command AUTH"
    for setting in ("password", "ssl_password"):
        secret = target.settings.get(setting)
        if isinstance(secret, bytes):
            secret = secret.decode("utf-8", "replace")
        if secret:
            with contextlib.suppress(Exception):  # a secret that cannot be made a str is in no text
                text = _pattern(str(secret)).sub("***", text)
    text = printable(" ".join(text.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _pattern(secret: str) -> re.Pattern[str]:
    """Finds ``secret``; a short one only as a word of its own.  Else a text could not be read for stars."""
    found = re.escape(secret)
    return re.compile(found if len(secret) > _SHORT else rf"(?<!\w){found}(?!\w)")


class Connector:
    """One attempt to connect to a master. Call it in a thread of its own. `abort` ends it early."""

    def __init__(self, target: Endpoint, timeout: float) -> None:
        self._target = target
        self._timeout = timeout
        self._connection: Any = None

    def __call__(
        self, prefix: str, max_ttl: float, fleet: Call | None = None, records: bool = False
    ) -> tuple[socket.socket, Facts]:
        """Connect, authenticate, load the scripts, ask for its identity, and announce ``max_ttl`` (R21).

        ``fleet``: announce our masters as well (R34). ``records``: load the scripts of R35 as well.
        Blocks for at most ``timeout`` seconds at each read. Raises the errors of redis-py; see `failure`.
        """
        return self._taken(lambda connection: _handshake(connection, prefix, max_ttl, fleet, records))

    def bare(self) -> socket.socket:
        """Connect and authenticate, and do nothing else. Raises the errors of redis-py."""
        return self._taken(lambda _: None)[0]

    def _taken(self, first: Callable[[Any], T]) -> tuple[socket.socket, T]:
        connection = self._connection = _build(self._target, self._timeout)
        try:
            connection.connect()
            result = first(connection)
            sock: socket.socket = connection._sock  # noqa: SLF001 - redis-py has no public way to get it
            connection._sock = None  # noqa: SLF001 - the socket is ours from now on
        except BaseException:
            with contextlib.suppress(Exception):
                connection.disconnect()
            raise
        _tune(sock)
        return sock, result

    def abort(self) -> None:
        """Wake the thread that connects. May be called from another thread."""
        sock = getattr(self._connection, "_sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def disown(self) -> None:
        """Close the copy of the descriptor in a forked child. Nothing is sent to the master."""
        sock = getattr(self._connection, "_sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):  # another thread was closing it at the moment of the fork
                os.close(sock.detach())

    def failure(self, error: BaseException) -> Failure:
        """The meaning of a failed attempt for the vote of this master."""
        words = self.words(error)
        if isinstance(error, (AttributeError, TypeError)) and _at_the_border(error):
            return Failure("error", installed.misfit(words), sent=False, configuration=True)
        if "Too many open files" in words:  # the name of the file does not help
            return Failure("error", NO_DESCRIPTOR, sent=False)
        found = classify(error, words)
        if self._target.tls and found.outcome == "timeout":  # the server may be waiting for a command in plain text
            return found._replace(reason=f"{found.reason} (a port without TLS behaves like this as well)")
        return found

    def words(self, error: BaseException) -> str:
        """The text of ``error``, on one line and without the password."""
        try:
            text = str(error)
        # It may be of a user's class, from a credential provider for instance. The connecting thread must survive it.
        except Exception:  # noqa: BLE001
            text = ""
        text, settings = masked(self._target, text) or type(error).__name__, self._target.settings
        if trouble(error, text) == "auth" and not (settings.get("password") or settings.get("credential_provider")):
            return f"{text} (no password was given, or an empty one)"
        return text


def _at_the_border(error: BaseException) -> bool:
    """Whether it was raised in redis-py or here, and not in code of a user, such as a credential provider."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return where is not None and where.tb_frame.f_globals["__name__"].partition(".")[0] in ("redis", "redlock")


NO_DESCRIPTOR = "Too many open files in this process (or machine): close some, or raise its limit (ulimit -n)"


def out_of_descriptors(error: BaseException) -> bool:
    """Whether this process, or its machine, has no free descriptor."""
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)


# Errors of TLS: ours about the server's certificate and TLS, and the server's alerts about ours.
_TLS = re.compile(
    "CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|Hostname mismatch|UNSUPPORTED_PROTOCOL"
    "|_ALERT_[A-Z_]*(CERTIFICATE|UNKNOWN_CA|PROTOCOL_VERSION|HANDSHAKE_FAILURE)"
)

# Why no connection can be made. Waiting may cure the last two. For the others something has to be changed.
Trouble: TypeAlias = Literal["auth", "permission", "database", "protocol", "tls", "timeout", "connection"]
_SAID: dict[Trouble, str] = {
    "auth": "wrong user or password: ",
    "permission": "not permitted: ",
    "protocol": "does not speak the Redis protocol: ",
    "tls": "TLS: ",
    "timeout": "no connection: ",
}


def trouble(error: BaseException, text: str) -> Trouble:
    """The kind of trouble. ``text`` is the text of the error."""
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return "auth"
    if isinstance(error, NoPermissionError):
        return "permission"
    if "DB index is out of range" in text or "SELECT is not allowed" in text:  # a cluster has only one database
        return "database"
    if isinstance(error, InvalidResponse):
        return "protocol"
    if _TLS.search(text):
        return "tls"
    if isinstance(error, (redis.TimeoutError, TimeoutError)):
        return "timeout"
    return "connection"


def classify(error: BaseException, text: str) -> Failure:
    """The failure that ``error`` is, on a connection that is being made; later ones are in `_core/outcomes.py`.

    Its ``configuration`` is True if something has to be changed.
    """
    kind, reply = trouble(error, text), ErrorReply.read(text)
    if reply.code == "DENIED":
        return reply.failure()._replace(sent=False, refused=False)
    passing = kind in ("timeout", "connection") and not reply.configuration
    outcome: Unheard = "timeout" if kind == "timeout" else "error"
    return Failure(outcome, _SAID.get(kind, "") + text, sent=False, configuration=not passing)


def _handshake(connection: Any, prefix: str, max_ttl: float, fleet: Call | None = None, records: bool = False) -> Facts:
    [[library], _] = _ask(
        connection,
        [("FCALL", scripts.LIBRARY, "0")],
        # Whether the name was taken does not matter.
        [("CLIENT", "SETNAME", CLIENT_NAME)] if getattr(connection, "client_name", None) is None else [],
    )
    functions = isinstance(library, bytes)
    asked_at = clock.now()
    # Each is a request of its own: two keys would need one slot of a cluster.
    announce, replid = wire.announce(prefix, max_ttl), wire.known(prefix)
    calls = [announce, *(() if fleet is None else (fleet,))]
    rights = [wire.fence_key(f"{prefix}redlock-rights", kind) for kind in (":fence", ":grant") if records]
    loaded = () if functions else scripts.USUAL + (scripts.RECORDED if records else ())
    writes, loads, (info, config), (announced, *lists), [known] = _ask(
        connection,
        [("FCALL", scripts.LIBRARY, "1", key) if functions else ("EVAL", "return 1", "1", key) for key in rights],
        [("SCRIPT", "LOAD", script.text) for script in loaded],
        [("INFO", "server"), ("CONFIG", "GET", "*append*")],
        [call.words_as_function if functions else call.words_with_text for call in calls],
        [replid.words_as_function if functions else replid.words],  # as it is asked from now on
    )
    if isinstance(known, ResponseError) and "No matching script" in str(known):  # none may be loaded
        [[known]] = _ask(connection, [replid.words_with_text])
    identity = read_info(info) if isinstance(info, bytes) else {}
    if identity.get("redis_mode") == "sentinel":
        raise ResponseError("unknown command EVAL: it is a Sentinel; give the address of an independent server instead")
    if records:
        _check_records(prefix, *writes)
    for answer in (announced, known):
        if isinstance(answer, NoPermissionError) and _OF_CALLS.search(str(answer)):
            raise NoPermissionError(f"{answer} ({_neither(library)})")
    for load in loads:
        if isinstance(load, RedisError) and not _does_without_loading(load):
            raise load
    return Facts(
        run_id=identity.get("run_id"),
        uptime=_uptime(identity.get("uptime_in_seconds")),
        clock=_clock_of(identity.get("server_time_usec", "")),
        durable=durable(config),
        announced=_read_announced(announced, announce.keys[0]),
        lists=_read_lists(lists[0]) if lists else None,
        known=_read_known(known),
        asked_at=asked_at,
        functions=functions,
    )


_OF_CALLS = re.compile("'(eval|evalsha|fcall)' command")


def _neither(library: Any) -> str:
    """What to do where the user may run neither scripts nor functions of ours (R44)."""
    if isinstance(library, NoPermissionError):
        return "grant FCALL, and load the library that redlock-check --functions prints, or grant EVAL and EVALSHA"
    return f"load the library {scripts.LIBRARY}, which redlock-check --functions prints, or grant EVAL and EVALSHA"


def _ask(connection: Any, *groups: Sequence[tuple[str, ...]]) -> list[list[Any]]:
    """Send all commands of ``groups`` at once.  Returns the answers of each group; an error is an answer, too."""
    for command in itertools.chain(*groups):
        connection.send_command(*command, check_health=False)
    return [[_answer(connection) for _ in group] for group in groups]


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:  # at any other error redis-py has closed the connection
        return error


def _check_records(prefix: str, fences: Any, grants: Any) -> None:
    """Raise if the user may use the keys of fences, and not the keys of records beside them (R35).

    A user who may use neither may have rights for some names alone, and each acquire says so.
    """
    if isinstance(grants, NoPermissionError) and not isinstance(fences, NoPermissionError):
        like = wire.fence_key(f"{prefix}NAME", ":grant")
        raise NoPermissionError(
            f"{grants} (confirm_expiry=True keeps records at keys like {like}: grant those too; redlock-check --acl "
            "prints the rule)"
        )


def _does_without_loading(answer: RedisError) -> bool:
    """Whether SCRIPT LOAD is not permitted, or was renamed away: EVAL sends the texts when they are needed."""
    return isinstance(answer, NoPermissionError) or ErrorReply.read(str(answer)).unknown


def _read_lists(answer: Any) -> Lists | None:
    """None: it takes no announcement, and keeps its vote.  The user may lack the right, for example."""
    if isinstance(answer, RedisError):
        return None
    try:
        return wire.read_fleet(answer)
    except wire.BadReply:
        return None


def _read_known(answer: Any) -> Known | None:
    """Raises if it is a replica: so a connection to it begins when it is a master, and shows what it is then (R21)."""
    if isinstance(answer, ReadOnlyError):
        raise answer
    with contextlib.suppress(wire.BadReply):  # an error is none of its answers, either
        return wire.read_known(answer)
    return None


def _read_announced(answer: Any, key: str) -> Announced:
    if isinstance(answer, NoPermissionError):
        raise NoPermissionError(f"{answer} (grant EVAL and the key {key})")
    if isinstance(answer, MovedError):  # its text is the slot and an address, and no more
        raise ResponseError(ErrorReply.read(f"MOVED {answer}").failure().reason)
    if isinstance(answer, ResponseError):
        denied = ErrorReply.read(f"ERR {answer}")
        if denied.code == "NOPERM":  # for a command of the script
            raise NoPermissionError(denied.failure().reason)
        if "WRONGTYPE" in str(answer):  # in the words that the script has for a wrong value: they name the key
            raise ResponseError(f"BADMAXTTL {key} does not hold the max_ttl of a client: delete it")
    if isinstance(answer, RedisError):
        raise answer
    return wire.read_announce(answer)


def read_info(reply: bytes) -> dict[str, str]:
    """The fields of an answer to INFO."""
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {key: value for key, colon, value in lines if colon}


def _uptime(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise wire.BadReply(f"INFO says that uptime_in_seconds is {text!r:.40}")
    return max(0, int(text))  # negative: the master's clock was set back to before its start


def _clock_of(microseconds: str) -> float | None:
    known = microseconds.isascii() and microseconds.isdigit() and len(microseconds) <= _DIGITS + len("000000")
    return int(microseconds) / 1e6 if known else None


def durable(reply: Any) -> bool:
    """Whether the answer to CONFIG GET says that the master forgets nothing in a restart."""
    # If CONFIG is not permitted, or its answer makes no sense, the exemption does not apply (R21).
    if not isinstance(reply, list) or not all(isinstance(word, bytes) for word in reply):
        return False
    config = dict(zip(reply[::2], reply[1::2], strict=False))
    always = config.get(b"appendonly") == b"yes" and config.get(b"appendfsync") == b"always"
    # With this option "always" has a gap: nothing is synced while the file is rewritten, which may take minutes.
    return bool(always and config.get(b"no-appendfsync-on-rewrite") != b"yes")


def _tune(sock: socket.socket) -> None:
    sock.setblocking(False)
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # So an idle connection is noticed before it is needed if a firewall forgot it, or its host vanished.
    for option, value in (
        ("TCP_KEEPIDLE", 10),
        ("TCP_KEEPALIVE", 10),  # its name on macOS
        ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(_UNCONFIRMED * 1000)),
    ):
        number = getattr(socket, option, None)
        if number is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, number, value)


# -- the protocol, once connected --------------------------------------------------------------------


# The bytes of a command. Pass only strings: for a number hiredis runs signal handlers, and crashes if one raises.
pack: Callable[[Any], bytes] = hiredis.pack_command

NOTHING = object()  # a parser returns this while an answer is not complete


class _Reader:
    """A parser of hiredis, protected from answers that announce a size beyond all reason."""

    __slots__ = ("_reader", "_sizes", "gets", "has_data")

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._sizes = Sizes()
        self.gets = reader.gets
        self.has_data = reader.has_data

    def feed(self, data: Any, begin: int = 0, length: int | None = None) -> None:
        """Take bytes of an answer. Raises `InvalidResponse` if they announce too much."""
        if length is not None:  # redis-py passes its buffer, and which part of it is new
            data = bytes(data[begin : begin + length])
        try:
            self._sizes.add(data)
        except TooMuch as error:
            raise InvalidResponse(str(error)) from None
        self._reader.feed(data)


class _Parser(DefaultParser):  # type: ignore[misc, valid-type]
    """The parser of redis-py with the same protection. It is in use until we take over the socket."""

    def on_connect(self, connection: Any, **options: Any) -> None:
        super().on_connect(connection, **options)
        self._reader: Any = _Reader(self._reader)


def parser() -> Any:
    """A parser that takes bytes and returns answers. Error replies are returned as `ErrorReply`."""
    reply_error: Callable[[str], Any] = ErrorReply.read
    return _Reader(hiredis.Reader(protocolError=InvalidResponse, replyError=reply_error, notEnoughData=NOTHING))
