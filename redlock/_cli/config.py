"""The masters and their credentials, from arguments, a TOML file or the environment.

Everybody on the machine can read a password that is given as an argument (``ps``). So it may also come from the
environment or from the file. Nothing here ever shows a password.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

from redlock import ConfigurationError
from redlock._cli.arguments import SECONDS, can_be_set, masked, shortened
from redlock._health import naming
from redlock._local import LOCAL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

MASTERS, USERNAME, PASSWORD = "REDLOCK_MASTERS", "REDLOCK_USERNAME", "REDLOCK_PASSWORD"

# Settings that a file may give for one master, or at the top for all masters.
_ACCESS: dict[str, type] = dict.fromkeys(
    ("username", "password", "password_env", "password_file", "tls_ca", "tls_cert", "tls_key"), str
)
# Settings that a file may give only for all masters: options of `Masters`.
_OPTIONS: dict[str, type | tuple[type, ...]] = {
    "prefix": str,
    "max_ttl": (int, float),
    "node_timeout": (int, float),
    "connect_timeout": (int, float),
    "drift_factor": (int, float),
    "fence_ttl": (int, float),
    "guard": (int, float),
    "outage_timeout": (int, float),
    "restart_guard": bool,
    "confirm_expiry": bool,
    "agreement": str,
}
# Options of redlock-run for one lock. In a file for all jobs, ``fair`` would be refused by those with ``--slots``.
_OF_ONE_COMMAND = frozenset((
    "ttl", "wait", "max_hold", "hold_at_least", "shared", "fair", "slots", "grace", "owner",
    "service", "restart", "status_port", "verbose", "quiet",
))  # fmt: skip
KEYS: dict[str, Any] = {"masters": list, **_ACCESS, **_OPTIONS}
KEYS_OF_A_MASTER: dict[str, Any] = {"url": str, "name": str, **_ACCESS}
_TIMES = ("max_ttl", "node_timeout", "connect_timeout", "fence_ttl", "guard", "outage_timeout")
_PASSWORDS = ("password", "password_file", "password_env")  # the first one that is given is used
_TLS = {"tls_ca": "ssl_ca_certs", "tls_cert": "ssl_certfile", "tls_key": "ssl_keyfile"}


@dataclass(frozen=True, slots=True)
class WantedMasters:
    """The masters, and the options that were given for them."""

    urls: tuple[str, ...] = field(repr=False)  # they contain passwords
    options: Mapping[str, Any]
    names: tuple[str, ...] = ()  # of the masters, in the same order (R34); none: they have no names

    @property
    def masters(self) -> tuple[str, ...] | dict[str, str]:
        """What `Masters` takes."""
        return dict(zip(self.names, self.urls, strict=True)) if self.names else self.urls

    @property
    def databases(self) -> bool:
        """Whether any address names a database other than the first, 0."""
        return any(_database(url, number) not in ("", "0") for number, url in enumerate(self.urls))


def deployment(urls: Sequence[str], arguments: argparse.Namespace, *, masters_needed: bool = True) -> WantedMasters:
    """Collect the masters and options: from the arguments, else from the file, else from the environment.

    Raises:
        ConfigurationError: for anything that cannot be right. The text contains no password.
    """
    if not all(split(some) for some in getattr(arguments, "masters", ())):
        raise ConfigurationError(
            "--masters is empty: check the variable that it comes from. To take those of "
            f"{MASTERS} or of --config, leave it out"
        )
    if arguments.config == "":
        raise ConfigurationError(
            "--config is empty: check the variable that it comes from. Without a file, leave it out"
        )
    from_file: dict[str, Any] = {}
    if arguments.config is not None:
        from_file = _read(arguments.config)
    masters = from_file.pop("masters", [])
    defaults = {key: from_file.pop(key) for key in _ACCESS if key in from_file}
    if not urls and not masters:
        urls = split(os.environ.get(MASTERS, ""))
    local = [*urls] == [LOCAL]
    if urls and not local:
        masters = _named(urls)
    if not masters and not local and masters_needed:
        if arguments.config is not None:
            raise _nameless(arguments.config)
        raise ConfigurationError(
            f"no masters: give their URLs (redis://HOST:PORT), or put them, separated by commas, into {MASTERS}, "
            "or into a file for --config"
        )
    options = {
        "prefix": arguments.prefix,
        "max_ttl": arguments.max_ttl,
        "node_timeout": arguments.node_timeout,
        "guard": getattr(arguments, "guard", None),
        "outage_timeout": getattr(arguments, "outage_timeout", None),
        "restart_guard": False if arguments.no_restart_guard else None,
        "confirm_expiry": True if arguments.confirm_expiry else None,
    }
    given = from_file | {key: value for key, value in options.items() if value is not None}
    if given.get("outage_timeout") == math.inf:
        given["outage_timeout"] = None
    if local:
        return WantedMasters(_local_urls() if masters_needed else (), given)
    addresses = (
        _address(_with(defaults, master), f"{arguments.config}, master {number}")
        for number, master in enumerate(masters, 1)
    )
    return WantedMasters(tuple(addresses), given, _names(masters, arguments.config))


def _local_urls() -> tuple[str, ...]:
    """The masters of this machine. They have no password, and refuse one."""
    from redlock._local import joined  # noqa: PLC0415 - for laptops

    return tuple(joined.urls())


def _named(addresses: Sequence[str]) -> list[dict[str, str]]:
    """The masters as a file has them: each address has a name in front (``lock-1=redis://…``), or none has one."""
    found = naming.masters(addresses)
    if isinstance(found, dict):
        return [{"name": name, "url": url} for name, url in found.items()]
    return [{"url": url} for url in found]


def _names(masters: Sequence[Mapping[str, Any]], file: str | None) -> tuple[str, ...]:
    names = tuple(naming.master_name(master["name"]) for master in masters if "name" in master)
    if len(set(names)) != len(names) or len(names) not in (0, len(masters)):
        raise ConfigurationError(f"{file}: give each master a name of its own, or none of them")
    return names


def split(value: str) -> list[str]:
    """The URLs in ``value``, which commas separate. A comma inside a password is written %2C."""
    return [url.strip() for url in value.split(",") if url.strip()]


def _read(file: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - most users have no file

    try:
        content = tomllib.loads(Path(file).read_text(encoding="utf-8-sig"))  # some editors write a byte order mark
    except OSError as error:
        shown = shortened(masked(file) if ":" in file else file)  # it may be an address, given in the wrong place
        raise ConfigurationError(f"{shown}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not TOML: it is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file} is not TOML: {error}") from None
    except (ValueError, RecursionError) as error:  # it may be correct TOML, but beyond Python's limits
        why = "a number in it is too long" if isinstance(error, ValueError) else "it is nested too deeply"
        raise ConfigurationError(f"{file} is not TOML that can be read: {why}") from None
    if "masters" in content:  # if not, they are given elsewhere
        if not isinstance(content["masters"], list) or not content["masters"]:
            raise _nameless(file)
        content["masters"] = [{"url": one} if isinstance(one, str) else one for one in content["masters"]]
    _check(content, KEYS, file)
    _check_times(content, file)
    for number, master in enumerate(content.get("masters", ()), 1):
        where = f"{file}, master {number}"
        if not isinstance(master, dict) or "url" not in master:
            raise ConfigurationError(f"{where}: write a URL, or a table with at least a url")
        _check(master, KEYS_OF_A_MASTER, where)
    return content


def _nameless(file: str) -> ConfigurationError:
    return ConfigurationError(f'{file} names no masters: write masters = ["redis://HOST:PORT", …]')


def _check(table: Mapping[str, Any], allowed: Mapping[str, Any], where: str) -> None:
    for key, value in table.items():
        if key not in allowed:
            if key in _OF_ONE_COMMAND:
                option = f"--{key.replace('_', '-')}"
                raise ConfigurationError(
                    f"{where}: {key!r} belongs to one command, and the file to all: use redlock-run {option}"
                )
            raise ConfigurationError(f"{where}: {key!r} is not known, allowed are {', '.join(allowed)}")
        kind = allowed[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = kind if isinstance(kind, tuple) else (kind,)
            wanted = " or ".join(
                {"str": "text", "int": "a number", "bool": "true or false"}.get(one.__name__, "")
                for one in names
                if one is not float
            )
            raise ConfigurationError(f"{where}: {key} has to be {wanted}{_instead(key, value)}")


def _check_times(table: Mapping[str, Any], where: str) -> None:
    """Refuse wrong times here. A later error would blame an option that depends on them, and that was not given."""
    for key in _TIMES:
        besides = {"outage_timeout": math.inf, "guard": 0}.get(key)
        if key in table and table[key] != besides and not can_be_set(table[key]):
            more = "" if besides is None else f", or {besides}"
            raise ConfigurationError(f"{where}: {key} = {reprlib.repr(table[key])}: allowed is {SECONDS}{more}")


def _instead(key: str, value: object) -> str:
    """The end of an error text that shows the wrong value, unless the value may be a password."""
    if key not in _OPTIONS:
        return ""
    try:
        return f", not {reprlib.repr(value)}"
    except ValueError:  # an int with more digits than Python prints
        return ""


def _with(defaults: Mapping[str, Any], master: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a master, with defaults for those it lacks. Any password of its own replaces all defaults."""
    own = any(kind in master for kind in _PASSWORDS)
    return {key: value for key, value in defaults.items() if not (own and key in _PASSWORDS)} | dict(master)


def _address(master: Mapping[str, Any], where: str) -> str:
    """The URL of a master, with its user, password and TLS files in it."""
    url: str = master["url"]
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url  # `Masters` will refuse it and say why
    place, _, query = rest.partition("?")
    authority = re.split("[/#]", place, maxsplit=1)[0]  # an @ in the path does not end a login
    login, _, host = authority.rpartition("@")
    user, colon, secret = login.partition(":")
    if not colon:
        name = master.get("username") or _environment(USERNAME) or ""
        user = user or quote(str(name), safe="")  # also without a password: some users need none
        password = _password(master, where)
        if password is not None:
            colon, secret = ":", quote(password, safe="")
    if user or colon:
        place = f"{user}{colon}{secret}@{host}{place[len(authority) :]}"
    if scheme in ("rediss", "valkeys"):
        files = [f"{option}={quote(master[key], safe='/')}" for key, option in _TLS.items() if key in master]
        query = "&".join(part for part in (query, *files) if part)
    return f"{scheme}://{place}" + (f"?{query}" if query else "")


def _password(master: Mapping[str, Any], where: str) -> str | None:
    """The password of a master, or None.

    An error quotes no file or variable name: it may be the password itself, by mistake.
    """
    if "password" in master:
        return str(master["password"])
    if "password_file" in master:
        try:
            content = Path(master["password_file"]).read_text(encoding="utf-8").rstrip("\n")
            if content:
                return content
            why = "it is empty"
        except OSError as error:
            why = error.strerror or str(error)
        except UnicodeDecodeError:
            why = "it is not UTF-8"
        except ValueError:
            why = "not the name of a file: it has a NUL in it"
        raise ConfigurationError(f"{where}: password_file: {why}")
    if "password_env" in master:
        password = _environment(master["password_env"])
        if not password:
            why = "not set" if password is None else "empty"
            raise ConfigurationError(f"{where}: password_env names a variable that is {why}")
        return password
    password = _environment(PASSWORD)
    if password == "":
        raise ConfigurationError(
            f"the environment variable {PASSWORD} is empty: check the secret that it comes from. For masters "
            "without a password, leave it out"
        )
    return password


def _environment(variable: str) -> str | None:
    value = os.environ.get(variable)
    try:
        (value or "").encode()
    except UnicodeEncodeError:  # an environment variable may be any bytes
        raise ConfigurationError(f"the environment variable {variable} is not UTF-8") from None
    return value


def _database(url: str, number: int) -> str:
    """The database that ``url`` names. `Masters` checks whether it exists."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its own text is dropped: it may quote the password
        raise ConfigurationError(f"masters[{number}] is no URL of a master: write redis://HOST:PORT") from None
    path = "" if parts.scheme == "unix" else parts.path.strip("/")
    return parse_qs(parts.query).get("db", [path])[0]
