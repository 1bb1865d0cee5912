"""Whatever a program gives us is taken or refused with a `ConfigurationError`, never anything else.

And no text about it has the password that was in it, or more than one line that could be forged.
"""

from __future__ import annotations

import math
import pickle
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
from hypothesis import assume, example, given, strategies as st

from redlock import AsyncMasters, ConfigurationError, Masters
from redlock.options import LONGEST_NAME
from tests.properties.profile import PROPERTY


class Shy:
    """Cannot even be shown."""

    def __repr__(self):
        raise ZeroDivisionError


MASTERS = Masters(["redis://10.0.0.1"])
ASYNC_MASTERS = AsyncMasters(["redis://10.0.0.1"])

anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(max_size=8),
    st.binary(max_size=8), st.lists(st.one_of(st.text(max_size=3), st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=2),
    st.sampled_from([10**400, 10**5000, -(10**5000), "x" * 10_000]), st.builds(object), st.just(print),
    st.just(Masters), st.builds(Shy),
)  # fmt: skip


@pytest.mark.parametrize("setting", ["host", "path"])
def test_a_name_that_no_server_has_is_refused_in_a_text_of_a_few_lines(setting):
    """It is shown in every error; here also where redis-py refuses another setting."""
    options: dict[str, Any] = {setting: "x" * 10_000, "username": "", "credential_provider": object()}
    if setting == "path":
        options["connection_class"] = redis.UnixDomainSocketConnection
    pool = redis.ConnectionPool(**options)
    with pytest.raises(ConfigurationError, match=f"a server has no such {setting}") as caught:
        Masters([redis.Redis(connection_pool=pool)])
    assert len(str(caught.value)) < 1000


def taken_or_refused(function):
    """What ``function`` returns; None if it refused."""
    try:
        return function()
    except ConfigurationError as error:
        check(str(error))
        return None


def check(text):
    assert text.strip()
    assert len(text.splitlines()) == 1, text
    assert len(text) < 2000


pieces = st.sampled_from([
    "redis://", "rediss://", "unix://", "http://", "://", ":", "//", "/", "@", "?", "&", "=", "#", "%", "%00", "%0a",
    "%2C", "[", "]", "[::1]", "user", "10.0.0.1", "localhost", "6379", "0", "-1", "65536", "9" * 30, "\u00b2", "\u0663",
    ".", "..", " ", "\n", "\0", "\ud800", "\u2100", "\u00fc", "a" * 70, "db=1", "db=x", "protocol=3", "username=u",
    "password=p", "host=h", "port=x", "port=0", "path=x", "ssl_cert_reqs=none", "ssl_cert_reqs=x", "ssl_min_version=x",
    "socket_timeout=x", "socket_type=x", "client_name=x y", "max_connections=x", "credential_provider=x", "retry=1",
    "health_check_interval=1",
])  # fmt: skip


@PROPERTY
@given(
    st.one_of(
        st.lists(pieces, max_size=10).map("".join), st.text(max_size=30), st.text(max_size=30).map("redis://".__add__)
    )
)
@example("redis://a%0ab")
@example("redis://h:\u00b2")
@example("unix://")
@example("redis://[fe80::1%25eth0]:1")
def test_urls(url):
    masters = taken_or_refused(lambda: Masters([url]))
    if masters is not None:
        (name,) = masters._runtime.deployment.settings.masters
        assert name
        assert name.isprintable()
        assert repr(masters) == f"<Masters {name}>"


WORD = "s3cr3t"  # is in every one of them, and nowhere else
secrets = st.text(st.characters(codec="utf-8"), max_size=8).map(WORD.__add__)
mistakes = st.sampled_from(["", ":port", ":0", ":70000", ":1:2", "/x@y", "[", "%zz", "?db=x", "?ssl_cert_reqs=x", "#"])


@PROPERTY
@given(
    secrets,
    mistakes,
    st.sampled_from(["redis://", "rediss://", "http://", "redis+tls://", "redis:/", "redis:", ""]),
    st.booleans(),
)
@example(f"{WORD}%00y\"'\\", ":port", "redis://", True)
@example(WORD, "://x", "", False)
def test_no_text_about_a_url_has_its_password(secret, mistake, scheme, is_quoted):
    """As it is, or as the URL has it."""
    shown = quote(secret, safe="") if is_quoted else secret
    url = f"{scheme}user:{shown}@10.0.0.1{mistake}"
    try:
        masters = Masters([url])
    except ConfigurationError as error:
        texts = [str(error), repr(error), pickle.dumps(error).decode("latin-1")]
    else:
        texts = [
            repr(masters), repr(masters._runtime.endpoints), repr(masters._runtime.deployment.settings),
            repr(masters.lock("a")),
        ]  # fmt: skip
    for text in texts:
        assert WORD not in text


SETTINGS = [
    "host", "port", "db", "username", "password", "client_name", "unix_socket_path", "ssl", "ssl_cert_reqs",
    "ssl_ca_data", "ssl_min_version", "credential_provider", "protocol",
]  # fmt: skip


@PROPERTY
@given(
    st.sampled_from([redis.Redis, redis.asyncio.Redis]),
    st.dictionaries(st.sampled_from(SETTINGS), anything, max_size=3),
)
@example(redis.Redis, {"port": ""})
@example(redis.Redis, {"port": []})
@example(redis.Redis, {"port": -1})
@example(redis.Redis, {"port": math.inf})
@example(redis.Redis, {"host": []})
@example(redis.Redis, {"unix_socket_path": 0})
@example(redis.Redis, {"unix_socket_path": b""})
@example(redis.Redis, {"unix_socket_path": "a\0b"})
@example(redis.Redis, {"ssl": True, "ssl_cert_reqs": "x" * 10_000})
def test_clients(kind, settings):
    try:
        client = kind(**settings)
    except Exception:  # noqa: BLE001 - redis-py refuses it itself, so nobody can hand it to us
        assume(False)
    masters = taken_or_refused(lambda: Masters([client]))
    if masters is not None:
        (name,) = masters._runtime.deployment.settings.masters
        assert name.isprintable()


@PROPERTY
@given(anything)
@example({})
@example("redis://10.0.0.1")
def test_what_is_no_list_of_masters(given_):
    taken_or_refused(lambda: Masters(given_))
    taken_or_refused(lambda: Masters([given_]))
    taken_or_refused(lambda: Masters(["redis://10.0.0.1", given_]))
    taken_or_refused(lambda: AsyncMasters([given_]))


@PROPERTY
@given(st.text(max_size=40))
@example(",")
@example("redis://10.0.0.1,redis://10.0.0.1")
def test_the_environment(value):
    assume("\0" not in value)
    try:
        value.encode()
    except UnicodeEncodeError:
        assume(False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDLOCK_MASTERS", value)
        taken_or_refused(Masters.from_env)


@PROPERTY
@given(
    st.sampled_from(["node_timeout", "connect_timeout", "drift_factor", "max_ttl", "prefix", "fence_ttl", "observer"]),
    anything,
)
@example("max_ttl", 10**400)
@example("prefix", "\ud800")
def test_options_of_masters(option, value):
    masters = taken_or_refused(lambda: Masters(["redis://10.0.0.1"], **{option: value}))
    if masters is not None:
        settings = masters._runtime.deployment.settings
        assert 0 < settings.node_timeout <= masters.max_ttl / 3
        assert masters.max_ttl <= settings.fence_ttl < math.inf
        assert 0 <= settings.drift_factor < 0.5
        assert masters._runtime.deployment.keys(("a",), fencing=True).locks[0].encode()  # it can be sent


OPTIONS = [
    "ttl", "timeout", "auto_extend", "max_hold", "min_validity", "fencing", "bound", "retry", "on_lost",
]  # fmt: skip


@PROPERTY
@given(st.sampled_from(OPTIONS), anything)
def test_options_of_locks(option, value):
    lock = taken_or_refused(lambda: MASTERS.lock("a", **{option: value}))
    also = taken_or_refused(lambda: ASYNC_MASTERS.lock("a", **{option: value}))
    assert (lock is None) == (also is None)  # C19
    if lock is not None:
        spec = lock._spec
        assert 0 < spec.min_validity < spec.ttl <= MASTERS.max_ttl
        assert repr(lock)


@PROPERTY
@given(anything, st.fixed_dictionaries({}, optional={"token": anything, "fence": anything, "ttl": anything}))
@example("a", {"token": "\ud800"})
@example("a", {"token": "x" * 5000})
@example("a", {"token": "0" * 40, "fence": 10**400})
@example("[" * 100_000, {})
def test_what_is_resumed(handed, options):
    lock = taken_or_refused(lambda: MASTERS.resume(handed, **options))
    also = taken_or_refused(lambda: ASYNC_MASTERS.resume(handed, **options))
    assert (lock is None) == (also is None)  # C19


@PROPERTY
@given(st.one_of(anything, st.text(), st.lists(st.text(max_size=4), max_size=4), st.text(min_size=150, max_size=600)))
@example("\ud800")
@example("a" * LONGEST_NAME)
@example("\u20ac" * 171)
@example(["a", "a"])
def test_names(name):
    lock = taken_or_refused(lambda: MASTERS.lock(name))
    if lock is None:
        return
    names = [name] if isinstance(name, str) else list(name)
    assert list(lock._spec.names) == names
    for one in names:
        assert 1 <= len(one.encode()) <= LONGEST_NAME
        assert "\0" not in one
    assert len(set(lock._spec.keys.locks)) == len(names)


@PROPERTY
@given(anything, anything)
def test_calls(blocking, timeout):
    """What is wrong with a call is said before anything is sent."""
    taken_or_refused(lambda: MASTERS.lock("a")._deadline(0.0, timeout, blocking=blocking))
