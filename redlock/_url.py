"""Reads the URL of a master. A part of it that is not understood is refused, never ignored.

An option that redis-py knows and a lock does not need is accepted, and said once in the log: URLs are shared with other
programs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import ssl
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redlock import options
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_SCHEME: Final = re.compile("[a-z+]{1,12}://")
_ANOTHER: Final = re.compile(", *(rediss?|valkeys?|unix)://")
_HOST: Final = re.compile(r"([\w.-]+|\[[\w.:%]+\])(:\d{1,5})?", re.ASCII)

# Valkey speaks the same protocol under a name of its own.
_OF_VALKEY: Final = {"valkey": "redis", "valkeys": "rediss"}

_YES: Final = ("true", "yes", "1")
_NO: Final = ("false", "no", "0")
_MOST_DATABASES: Final = 2**31 - 1


def _database(value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value[:12]) <= _MOST_DATABASES):
        raise ValueError("a number from 0 on")
    return int(value)


def _flag(value: str) -> bool:
    if value.lower() not in _YES + _NO:
        raise ValueError("true or false")
    return value.lower() in _YES


def _client_name(value: str) -> str:
    """What ``CLIENT SETNAME`` takes; with another one each connection would be refused."""
    if not all("!" <= letter <= "~" for letter in value):
        raise ValueError("printable ASCII without spaces")
    return value


def _version(value: str) -> ssl.TLSVersion:
    known = {str(int(one)): one for one in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}
    if value not in known:
        raise ValueError("771 (TLS 1.2) or 772 (TLS 1.3)")
    return known[value]


def _verify_flags(value: str) -> list[ssl.VerifyFlags]:
    known = {one.name: one for one in ssl.VerifyFlags}
    names = [name.strip() for name in value.removeprefix("[").removesuffix("]").split(",")]
    if not all(name in known for name in names):
        raise ValueError(f"{', '.join(str(name) for name in known)}, separated by commas")
    return [known[name] for name in names]


# The options of redis-py that say where the server is and who we are. Timeouts, retries, pools, decoding and the
# protocol are decided by this library (R4).
_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "db": _database,
    "username": str,
    "password": str,
    "client_name": _client_name,
}
_TLS: Final[dict[str, Callable[[str], Any]]] = {
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_ca_data": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_password": str,
    "ssl_cert_reqs": str,
    "ssl_check_hostname": _flag,
    "ssl_min_version": _version,
    "ssl_ciphers": str,
    "ssl_validate_ocsp": _flag,
    "ssl_validate_ocsp_stapled": _flag,
    "ssl_include_verify_flags": _verify_flags,
    "ssl_exclude_verify_flags": _verify_flags,
}

# The other options that redis-py and valkey-py take from a URL. Their values are ignored.
_UNUSED: Final = frozenset(
    (
        "decode_responses",
        "encoding",
        "encoding_errors",
        "health_check_interval",
        "legacy_responses",
        "lib_name",
        "lib_version",
        "max_connections",
        "protocol",
        "retry_on_error",
        "retry_on_timeout",
        "single_connection_client",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_read_size",
        "socket_timeout",
        "timeout",
    )
)
_log: Final = logging.getLogger("redlock")


@functools.cache
def _say_unused(name: str) -> None:
    """Say it once in a process, and not for each master of each `Masters`."""
    with contextlib.suppress(Exception):  # from a logging handler
        _log.warning(
            "the option %s in the URL of a master is not used: timeouts are options of Masters, and the rest is fixed",
            name,
        )


def read(url: str) -> tuple[str, dict[str, Any]]:
    """The scheme of ``url``, and the settings of a connection, both with the names that redis-py gives them.

    Raises:
        ConfigurationError: ``url`` contains anything that is not allowed. The text contains no password.
    """
    scheme = _SCHEME.match(url)  # errors show only the scheme: all other text may be a password
    if scheme is None:
        raise ConfigurationError(
            "the URL of a master begins with redis://, valkey://, rediss:// or valkeys:// (TLS), or unix://, and this "
            "one does not: write redis://HOST:PORT"
        )
    if _ANOTHER.search(url):
        raise ConfigurationError(f"{scheme[0]}… has several URLs in it, separated by commas: give them one by one")
    shown = f"{scheme[0]}…"
    parts, place = _split(url, shown)
    found = _socket(parts, place, shown) if parts.scheme == "unix" else _server(parts, place, shown)
    if "#" in url:
        raise ConfigurationError(f"{shown} has a # in it: write %23 for one in a password or a path")
    for name, value in (("username", parts.username), ("password", parts.password)):
        if value:
            found[name] = unquote(value)
    _add_options(parts, found, shown)
    return parts.scheme, found


def _split(url: str, shown: str) -> tuple[SplitResult, tuple[str | None, int | None]]:
    """The parts of ``url``, and its host and port."""
    try:
        url.encode()
        parts = urlsplit(url)
        parts = parts._replace(scheme=_OF_VALKEY.get(parts.scheme, parts.scheme))
        _no_password_behind(parts)
        place = parts.hostname, parts.port
        if parts.scheme in ("redis", "rediss", "unix"):
            return parts, place
    except ValueError:
        pass  # the text of this error is dropped: it may quote a character of the password
    raise ConfigurationError(
        f"{shown} is no URL of a master: write redis://, rediss://, valkey://, valkeys:// or unix://, percent-encode "
        "characters like / # ? in a password, and give a port from 1 to 65535"
    )


def _socket(parts: SplitResult, place: tuple[str | None, int | None], shown: str) -> dict[str, Any]:
    if any(part is not None for part in place):
        raise ConfigurationError(f"{shown} has a host: a path follows three slashes, as in unix:///run/redis.sock")
    return {"path": unquote(parts.path)}


def _server(parts: SplitResult, place: tuple[str | None, int | None], shown: str) -> dict[str, Any]:
    host, port = place
    if not host or port == 0:
        missing = "has port 0" if host else "names no host"
        raise ConfigurationError(
            f"{shown} {missing}: write redis://HOST:PORT, with a port from 1 to 65535, "
            "and percent-encode characters like / # ? in a password"
        )
    found: dict[str, Any] = {"host": unquote(host)}
    if port is not None:
        found["port"] = port
    if parts.path not in ("", "/"):
        found["db"] = _taken("db", unquote(parts.path[1:]), _database, shown)
    return found


def _add_options(parts: SplitResult, found: dict[str, Any], shown: str) -> None:
    """Add the options behind the question mark to ``found``."""
    allowed = _OPTIONS | (_TLS if parts.scheme == "rediss" else {})
    for name, value in parse_qsl(parts.query, keep_blank_values=True, max_num_fields=100):
        if name in _UNUSED:
            _say_unused(name)
            continue
        if name not in allowed:
            _unknown(name, parts, shown)
        if name in found:
            raise ConfigurationError(f"{shown} says {name} twice: once is enough")
        if not value:
            raise ConfigurationError(f"{shown} has the option {name} without a value: give one, or leave it out")
        found[name] = _taken(name, value, allowed[name], shown)


def _unknown(name: str, parts: SplitResult, shown: str) -> NoReturn:
    what = f"the option {options.shown(name)}"
    # If an @ or the option password is in the query, the unknown name may be a part of the password: do not show it.
    if "@" in parts.query:
        what = "an option that is not known"
    elif "password=" in parts.query:
        what = "an option that is not known (in a password write %26 for &)"
    if name in _TLS:
        raise ConfigurationError(f"{shown} has {what}, and speaks no TLS: write rediss:// for TLS, or leave it out")
    tls = " and, with rediss://, those of TLS (ssl_ca_certs, …)" if parts.scheme == "redis" else ""
    raise ConfigurationError(
        f"{shown} has {what}, which says nothing here: allowed are "
        f"{', '.join(_OPTIONS | (_TLS if parts.scheme == 'rediss' else {}))}{tls}; "
        "timeouts and the like are options of Masters"
    )


def _taken(name: str, value: str, read_it: Callable[[str], Any], shown: str) -> Any:
    try:
        return read_it(value)
    except ValueError as error:
        # The value is not shown: it may be a password in the wrong place.
        what = "a database that does not exist" if name == "db" else f"a wrong {name}"
        raise ConfigurationError(f"{shown} has {what}: allowed is {error}") from None


def _no_password_behind(parts: SplitResult) -> None:
    """Raise ValueError if the host may be the beginning of a password with a / # or ? in it. It would be shown."""
    host = parts.netloc.rpartition("@")[2]
    if host and any("@" in part for part in (parts.path, parts.fragment, parts.query.partition("=")[0])):
        raise ValueError


def host_of(url: str) -> str:
    """The host and port of a URL that may be wrong. Empty if they might be a part of a password."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return ""
    rest = url[scheme.end() :]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in rest[len(authority) :]:
        return ""
    found = _HOST.match(authority.rpartition("@")[2])
    return found[0] if found else ""
