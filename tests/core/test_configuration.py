"""C15, C17, C20: a wrong value is refused where it is given, and no password is shown."""

from __future__ import annotations

import asyncio
import enum
import math
import re
import ssl
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey.asyncio.sentinel
import valkey.sentinel

from redlock import AsyncMasters, AsyncMultiLock, ConfigurationError, Masters, MultiLock, _url
from redlock._io.deployment import Limits
from redlock._lock.times import checked
from tests.owners import proves

pytestmark = proves("R4", "C15", "C17", "C20")

URLS = [f"redis://10.0.0.{i}:6379" for i in range(1, 4)]
SECRET = "s3cr3t-word"  # noqa: S105


@pytest.mark.parametrize(("options", "said"), [
    *[({"node_timeout": wrong}, f"node_timeout={wrong}: allowed is more than 0") for wrong in (0, -1, math.nan, math.inf)],
    ({"node_timeout": "1"}, "node_timeout='1': allowed is a number of seconds, not str"),
    ({"node_timeout": True}, "not bool"),
    ({"node_timeout": 21.0}, "at most 20"),  # a third of max_ttl
    *[({option: wrong}, f"{option}={wrong}") for option, wrong in (("connect_timeout", 0), ("drift_factor", -0.1), ("fence_ttl", -1))],
    ({"drift_factor": None}, "drift_factor=None: allowed is a number, not NoneType"),
    ({"drift_factor": 0.5}, "not including, 0.5"),
    *[({"max_ttl": wrong}, f"max_ttl={wrong}") for wrong in (0, math.nan)],
    ({"fence_ttl": 10.0}, "at least max_ttl"),
    ({"timeout": math.nan}, "timeout=nan"),
    ({"outage_timeout": 0}, "outage_timeout=0: allowed is more than 0"),
    ({"outage_timeout": "never"}, "outage_timeout='never': allowed are a number of seconds, \"max_ttl\", and None"),
    ({"prefix": "a\0b"}, "without NUL"),
    ({"prefix": None}, "prefix=None"),
    *[({"guard": wrong}, f"guard={wrong}: allowed is") for wrong in (-1, True)],
    *[({option: "no"}, f"{option}='no': allowed are True and False") for option in ("restart_guard", "confirm_expiry")],
])  # fmt: skip
def test_masters(options, said):
    with pytest.raises(ConfigurationError) as caught:
        Masters(URLS, **options)
    assert said in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("options", "said"), [
    *[({"ttl": wrong}, f"ttl={wrong}") for wrong in (0, -3, math.nan)],
    ({"ttl": 61}, "ttl=61: allowed is more than 0 and at most 60 s"),
    ({"ttl": 0.5}, "at least 0.75 s, three times node_timeout"),  # R7
    ({"ttl": "30"}, "not str"),
    ({"timeout": math.nan}, "timeout=nan"),
    ({"min_validity": 0}, "min_validity=0"),
    ({"min_validity": 30}, "min_validity=30: allowed is more than 0 and less than 29.698 s"),
    ({"min_validity": 29.698}, "less than 29.698 s"),  # all of it would have to be left
    ({"hold_at_least": 31}, "hold_at_least=31: allowed is 0 or more and at most 30 s: the ttl of the lock (R28)"),
    ({"hold_at_least": -1}, "hold_at_least=-1"),
    ({"hold_at_least": "5"}, "hold_at_least='5': allowed is a number of seconds, not str"),
    ({"hold_at_least": False}, "not bool"),
    ({"hold_at_least": []}, "hold_at_least=[]"),
    ({"retry": 3}, "tenacity"),
    *[
        ({option: wrong}, f"{option}={wrong!r}: allowed are True and False")
        for option, wrong in (("bound", None), ("auto_extend", "no"), ("fencing", 0), ("shared", 1))
    ],
    ({"shared": True, "max_readers": 0}, "max_readers=0: allowed is a whole number above 0"),
    ({"max_readers": 5}, "shared=False: max_readers without it is of no use"),
    ({"shared": True, "hold_at_least": 1.0}, "shared=True with hold_at_least=1"),
    ({"fair": 1}, "fair=1"),
    ({"fair": True, "shared": True}, "readers enter together"),
    ({"fair": True, "fencing": False}, "that of proposed fencing tokens"),
    *[({"max_waiters": wrong}, "max_waiters=") for wrong in (0, -1, True, 1.5, "many")],
    ({"owner": "two\nlines"}, "owner="),
    ({"on_lost": 5}, "on_lost"),
    ({"name": ""}, "0 bytes"),
    ({"name": "x" * 513}, "513 bytes"),
    ({"name": "ü" * 257}, "514 bytes"),
    ({"name": "a\0b"}, "NUL"),
    ({"name": "\ud800"}, "UTF-8"),
    *[({"name": wrong}, f"name={wrong!r}") for wrong in (7, b"bytes")],
    ({"name": []}, "at least one"),
    ({"name": ["a", 1]}, "name=1"),
    ({"name": ["a", "b", "a"]}, "'a' is there twice"),
    # A lock of 20,000 names kept a master from everybody else for longer than node_timeout.
    ({"name": [f"{i}" for i in range(1001)]}, "1001 names: allowed are at most 1000"),
    # One would be granted the other's fence, or the fence the other's token.
    ({"name": ["{u}", "{u}:fence"]}, "'{u}:fence' is where the masters keep the fencing token of '{u}'"),
    ({"name": ["{u}:fence", "b", "{u}"]}, "'{u}:fence' is where the masters keep the fencing token of '{u}'"),
    ({"name": ["u", "{u}:fence"], "of": {"prefix": ""}}, "'{u}:fence' is where the masters keep the fencing token of 'u'"),
    # R21: it holds a number without an expiry, and every client would wait for that for ever.
    ({"name": "redlock-max-ttl:", "of": {"prefix": ""}}, "at 'redlock-max-ttl:' the masters keep what clients announce"),
    # R35: a lease is on record with its fence, and at a key of its own.
    ({"fencing": False, "of": {"confirm_expiry": True}}, "fencing=False with confirm_expiry=True"),
    ({"name": ["{u}", "{u}:grant"], "of": {"confirm_expiry": True}}, "'{u}:grant' is where the masters keep the record of '{u}'"),
    # R42: in line for the one, a client would find the lock of the other there.
    ({"name": ["{u}", "{u}:tickets"], "fair": True}, "'{u}:tickets' is where the masters keep the queue of '{u}'"),
    # R36
    ({"ttl": 51, "of": {"guard": 10}}, "ttl=51 with guard=10: allowed is max_ttl for both together, 60 s, for masters"),
    ({"ttl": 30, "guard": 31}, "ttl=30 with guard=31: allowed is max_ttl for both together, 60 s"),
    ({"guard": 60}, "guard=60: allowed is 0 or more and less than 60 s: max_ttl, which is for"),
    # R6, R7: less than half of the TTL is left, so no acquire could ever succeed.
    ({"ttl": 1, "of": {"drift_factor": 0.499}}, "ttl=1 with drift_factor=0.499: 0.499 s are left"),
    ({"ttl": 1, "of": {"drift_factor": 0.499}}, "a smaller drift_factor"),
])  # fmt: skip
def test_locks(options, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        lock(**options)


def lock(*, name: Any = "job", of: Any = None, **options: Any) -> MultiLock:
    return MultiLock(name, Masters(URLS, **of or {}), **options)


@pytest.mark.parametrize("options", [
    {"min_validity": 29.697, "hold_at_least": 0, "guard": 0.0},  # nearly all that there is
    {"name": ["{u}", "{u}:fence"], "fencing": False},  # without fencing there is no fence key
    {"name": "{u}:fence"},  # in two locks they only refuse each other
    {"name": ["u", "u:fence"]},
    {"name": ["{u}", "{u}:grant", "{u}:tickets"]},  # nothing is on record (R35), and nobody waits in order (R42)
    {"name": "redlock-max-ttl:"},
    {"name": [f"{i}" for i in range(1000)]},
    {"ttl": 1, "min_validity": 0.4, "of": {"drift_factor": 0.499}},
    {"ttl": 10, "of": {"drift_factor": 0.499}},
    {"ttl": 50, "of": {"guard": 10}},
    {"ttl": 60, "guard": 0, "of": {"guard": 10}},
])  # fmt: skip
def test_locks_that_may_be(options):
    lock(**options)


class Site(str, enum.Enum):  # noqa: UP042 - of this kind
    """A text that prints as something else in an f-string."""

    EAST = "east"
    URL = "redis://10.0.0.1:6379"


def test_a_member_of_an_enumeration_is_the_text_that_it_stands_for():
    """One key, one channel and one line of waiters for the member and for its value."""
    masters = Masters({Site.EAST: Site.URL}, prefix=Site.EAST, owner=Site.EAST)
    assert repr(masters) == "<Masters east>"
    assert masters.lock("a")._settings.token().endswith(":east")
    for name in (Site.EAST, [Site.EAST, "b"]):
        of_member = masters.lock(name)._spec
        of_value = masters.lock([str.__str__(one) for one in name] if isinstance(name, list) else "east")._spec
        assert repr(of_member.keys) == repr(of_value.keys)
        assert repr(of_member.names) == repr(of_value.names)


@pytest.mark.parametrize(("options", "least"), [
    ({}, 5.0),
    ({"hold_at_least": 2}, 5.0),
    ({"hold_at_least": 8}, 8.0),
    ({"hold_at_least": 10}, 9.648),  # less 1 %, 2 ms and node_timeout: more cannot be had
    ({"hold_at_least": 8, "min_validity": 1}, 8.0),
    ({"hold_at_least": 8, "min_validity": 9}, 9.0),
])  # fmt: skip
def test_an_acquire_leaves_enough_for_what_it_is_to_hold_at_least(options, least):
    """R28: its holder may die right after it."""
    given = {"hold_at_least": None, "min_validity": None, **options}
    times = checked(
        Limits(60.0, 0.25, 0.01, math.inf, 0.0), 10, -1, None, given["hold_at_least"], given["min_validity"]
    )
    assert times.min_validity == pytest.approx(least)


WORLDS = [pytest.param(Masters, MultiLock, id="threads"), pytest.param(AsyncMasters, AsyncMultiLock, id="asyncio")]
TIMES = "timeout= is for how many seconds to wait for the lock, and ttl="
OF_LOCK = f": {TIMES}, an option of the lock, for"


@pytest.mark.parametrize(("kind", "lock"), WORLDS)
@pytest.mark.parametrize(("word", "hint", "of_acquire"), [
    ("blocking_timeout", f": {TIMES}", OF_LOCK),  # redis-py, for our timeout=
    *((word, f": {TIMES}", OF_LOCK) for word in ("expire", "ex", "nx", "auto_release_time")),
    ("sleep", ": the pause between attempts is retry=", ""),
    ("tll", ": did you mean ttl=?", ""),
    ("timeot", ": did you mean timeout=?", ": did you mean timeout=?"),
    ("ttl", None, ": ttl= is an option of the lock"),
    ("colour", "", ""),
])  # fmt: skip
def test_a_keyword_of_another_library_is_told_what_it_is_called_here(kind, lock, word, hint, of_acquire):
    masters = kind(URLS)
    acquire = masters.lock("job").acquire
    calls: list[tuple[Any, str]] = [
        (lambda: asyncio.run(acquire(**{word: 5})) if kind is AsyncMasters else acquire(**{word: 5}), of_acquire)
    ]
    if hint is not None:
        calls += [
            (lambda: lock("job", masters, **{word: 5}), hint),
            (lambda: masters.lock("job", **{word: 5}), hint),
            (lambda: masters.synchronized("{job}", **{word: 5}), hint),
            (lambda: masters.slots("job", limit=2, **{word: 5}), hint),
        ]
    for call, said in calls:
        with pytest.raises(TypeError, match=re.escape(f"got an unexpected keyword argument {word!r}{said}")):
            call()


@pytest.mark.parametrize(("call", "said"), [
    *[(lambda masters, options=options: masters.slots(**{"name": "import", "limit": 2, **options}), said) for options, said in (
        ({"limit": 0}, "limit=0: allowed is a whole number from 1 to 100"),
        ({"limit": 101}, "limit=101"),
        ({"limit": True}, "limit=True"),
        ({"limit": 2.0}, "limit=2.0"),
        ({"name": ["a", "b"]}, "allowed is one name"),
        ({"name": "n" * 511}, "name="),
        ({"ttl": -1}, "ttl=-1"),
        ({"ttl": 30, "guard": 31}, "ttl=30 with guard=31"),
        ({"shared": True}, "shared=True"),
        ({"fair": True}, "there is no order"),
    )],
    *[(lambda masters, wrong=wrong: masters.held(wrong), "match=") for wrong in ("", 7, None, b"*", "\ud800", "a\0")],
    (lambda masters: masters.leader("a", ttl=30, guard=31), "ttl=30 with guard=31"),
    *[(lambda masters, wrong=wrong: masters.resume("a", token=wrong), "token=") for wrong in ("", "nobody's", 5, b"bytes")],
    *[(lambda masters, wrong=wrong: masters.resume("a", token="0" * 40, fence=wrong), "fence=") for wrong in (0, -1, "7", True)],
    (lambda masters: masters.wait_until_free(""), "name=''"),
    (lambda masters: masters.wait_until_free([]), "at least one"),
    *[(lambda masters, wrong=wrong: masters.wait_until_free("a", timeout=wrong), "timeout=") for wrong in ("soon", None)],
    (lambda masters: masters.watch(""), "name=''"),
    (lambda masters: masters.status(""), "name=''"),
    (lambda masters: masters.lock("job").acquire(blocking=False, timeout=1), "blocking=False with timeout=1"),
    (lambda masters: masters.lock("job").acquire(timeout=math.nan), "timeout=nan"),
    *[(lambda masters, wrong=wrong: masters.check(timeout=wrong), f"timeout={wrong!r}") for wrong in (0, math.nan, "3")],
    (lambda masters: masters.lock("job").acquire(5), "blocking=5: allowed are True and False"),  # seconds, it may have meant
])  # fmt: skip
def test_calls(call, said):
    """Of locks, of slots (R32), of lists (R29)."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        call(Masters(URLS))


@pytest.mark.parametrize(("masters", "said"), [
    ([], "empty"),
    ("redis://10.0.0.1", "a list of URLs"),
    (None, "a list of URLs"),
    ([3], "not int"),
    (["http://10.0.0.1"], "http://… is no URL of a master"),
    (["10.0.0.1:6379"], "this one does not: write redis://HOST:PORT"),
    (["redis://10.0.0.1,redis://10.0.0.2"], "redis://… has several URLs in it, separated by commas"),
    (["redis://"], "names no host"),
    (["redis://10.0.0.1:0"], "has port 0"),
    (["redis://10.0.0.1:99999"], "port from 1 to 65535"),
    (["redis://10.0.0.1", "redis://10.0.0.1:6379/0"], "masters[0] and masters[1] are the same server, 10.0.0.1:6379"),
    (["redis://10.0.0.1/1", "redis://10.0.0.1/2"], "same server"),  # C15: two databases are one server
    (["redis://a.example", "redis://A.example"], "same server"),
    (["redis://10.0.0.1", redis.Redis(host="10.0.0.1")], "same server"),
    (["redis://10.0.0.1", "valkey://10.0.0.1"], "same server"),
    (["valkeys://10.0.0.1", valkey.Valkey(host="10.0.0.1")], "same server"),
    (["valkey://10.0.0.1,valkeys://10.0.0.2"], "valkey://… has several URLs in it, separated by commas"),
    (["valkey://10.0.0.1?ssl_cert_reqs=none"], "valkey://… has the option 'ssl_cert_reqs', and speaks no TLS"),
    (["valkeyss://10.0.0.1"], "valkeyss://… is no URL of a master"),
    ([redis.Sentinel([("10.0.0.1", 1)]).master_for("m")], "a master that Sentinel may replace"),
    ([valkey.sentinel.Sentinel([("10.0.0.1", 1)]).master_for("m")], "a master that Sentinel may replace"),
    ([valkey.asyncio.sentinel.Sentinel([("10.0.0.1", 1)]).master_for("m")], "a master that Sentinel may replace"),
    (["unix:///tmp/a", "unix:///tmp/a?db=1"], "same server"),
])  # fmt: skip
def test_who_the_masters_are(masters, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Masters(masters)


@pytest.mark.parametrize("url", [
    f"redis://user:{SECRET}@10.0.0.1:6379", f"rediss://:{SECRET}@10.0.0.1", f"redis://10.0.0.1?password={SECRET}",
    f"unix://user:{SECRET}@/tmp/redis.sock",
])  # fmt: skip
def test_no_repr_shows_a_password(url):
    """C20."""
    masters = Masters([url])
    lock = masters.lock("job")
    for shown in (masters, lock, masters._runtime.endpoints, masters._runtime.deployment.settings):
        assert SECRET not in repr(shown)
        assert SECRET not in str(shown)


@pytest.mark.parametrize("url", [
    f"redis://user:{SECRET}/x@10.0.0.1:6379",  # what comes before the slash looks like a port
    f"redis://user:{SECRET}@10.0.0.1:port",
    f"redis://user:{SECRET}@10.0.0.1:70000",
    f"redis:/user:{SECRET}@10.0.0.1",
    f"user:{SECRET}@10.0.0.1",
    f"redis://user:{SECRET}@[10.0.0.1",
    f"redis://user:{SECRET}@10.0.0.1?db={SECRET}",
    f"redis://user:12/{SECRET}@10.0.0.1",  # as does what comes before these: it would be shown as host and port
    f"redis://{SECRET}/x@10.0.0.1",
    f"redis://{SECRET}#x@10.0.0.1",
    f"redis://{SECRET}?x@10.0.0.1",
    f"redis://user:a@{SECRET}/x@10.0.0.1",
    f"unix://user:x/{SECRET}@/tmp/redis.sock",
    f"unix://user:a@x/{SECRET}@/tmp/redis.sock",
    f"redis://:{SECRET}\udce9@10.0.0.1",
    f"redis://10.0.0.1?password=a&{SECRET}",
    f"rediss://10.0.0.1?ssl_password=a&{SECRET}=b",
])  # fmt: skip
def test_no_error_about_a_url_shows_its_password(url):
    with pytest.raises(ConfigurationError) as caught:
        Masters([url])
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(("url", "said"), [
    ("redis://h:p/abc", "port from 1 to 65535"),
    ("redis://h/abc", "a database that does not exist: allowed is a number from 0 on"),
    ("redis://h/-1", "a number from 0 on"),
    ("redis://h/1/2", "a number from 0 on"),
    ("redis://h//1", "a number from 0 on"),
    ("redis://h/\u0663", "a number from 0 on"),
    ("redis://h?db=abc", "a number from 0 on"),
    ("redis://h?db=9999999999", "a number from 0 on"),
    ("redis://h?client_name=two%20words", "printable ASCII without spaces"),
    ("redis://h?client_name=%0a", "printable ASCII without spaces"),
    ("redis://h/1?db=2", "says db twice"),
    ("redis://h?db=1&db=2", "says db twice"),
    ("redis://:one@h?password=two", "says password twice"),
    ("redis://h?foo=1", "the option 'foo', which says nothing here: allowed are db, username"),
    ("redis://h?foo", "the option 'foo'"),
    ("redis://h?sockettimeout=5", "timeouts and the like are options of Masters"),
    ("redis://h?host=other", "the option 'host'"),
    ("redis://h?ssl_ca_certs=/x", "speaks no TLS: write rediss://"),
    ("redis://h?DB=1", "the option 'DB'"),
    ("redis://h?password=", "the option password without a value"),
    ("redis://h?password=a&b", "an option that is not known (in a password write %26 for &), which says nothing here"),
    ("rediss://h?ssl_certfile=", "the option ssl_certfile without a value"),
    ("rediss://h?ssl_check_hostname=flase", "a wrong ssl_check_hostname: allowed is true or false"),
    ("rediss://h?ssl_min_version=1.3", "allowed is 771 (TLS 1.2) or 772 (TLS 1.3)"),
    ("rediss://h?ssl_cert_reqs=perhaps", "settings for h:6379 are refused"),
    ("rediss://h?ssl_include_verify_flags=VERIFY_ALL", "VERIFY_X509_STRICT"),
    ("rediss://h?ssl_foo=1", "the option 'ssl_foo'"),
    ("redis://h#1", "has a # in it"),
    ("redis://h/1#", "has a # in it"),
    ("unix://run/redis.sock", "three slashes"),
    ("unix:///run/redis.sock?foo=1", "the option 'foo'"),
    ("unix:///run/redis.sock?db=abc", "a number from 0 on"),
    ("unix:///run/redis.sock?ssl_ca_certs=/x", "speaks no TLS"),
])  # fmt: skip
def test_what_a_url_says_and_nobody_would_do_is_refused(url, said):
    """Ignored, it would be another database, another timeout or no TLS, in silence."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Masters([url])


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey"])
def test_what_redis_py_knows_and_a_lock_does_not_need_is_accepted_and_said_once(scheme, caplog):
    """URLs are shared with other programs."""
    _url._say_unused.cache_clear()
    query = "protocol=3&health_check_interval=30&socket_timeout=5&decode_responses=true&max_connections=&db=2"
    for masters in (Masters, AsyncMasters, Masters):
        (target,) = masters([f"{scheme}://h?{query}"])._runtime.endpoints
        assert {name: value for name, value in target.settings.items() if not name.startswith("ssl_")} == {
            "host": "h", "port": 6379, "db": 2,
        }  # fmt: skip
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 5
    assert said[0].startswith("the option protocol in the URL of a master is not used")


class OwnConnection(redis.Connection):
    """As fakeredis has one."""


class OwnAsyncConnection(redis.asyncio.Connection):
    """The same."""


@pytest.mark.parametrize("client", [
    redis.Redis(connection_pool=redis.ConnectionPool(OwnConnection, host="10.0.0.1")),
    redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(OwnAsyncConnection, host="10.0.0.1")),
])  # fmt: skip
def test_a_client_that_reaches_its_server_in_a_way_of_its_own_is_not_taken_for_its_address(client):
    """Real locks would be taken there, for one that only seems to be a server."""
    for masters in (Masters, AsyncMasters):
        with pytest.raises(ConfigurationError, match=r"test_configuration\.Own.*redlock\.testing"):
            masters([client])


def test_what_a_url_says_is_what_is_done():
    url = "rediss://an%20other:p%2Fw%2520@H:1/3?client_name=me&ssl_check_hostname=no&ssl_cert_reqs=none"
    (target,) = Masters([url])._runtime.endpoints
    assert target.settings == {
        "host": "h", "port": 1, "db": 3, "username": "an other", "password": "p/w%20", "client_name": "me",
        "ssl_check_hostname": False, "ssl_cert_reqs": "none",
    }  # fmt: skip
    # Older versions of redis-py do not know it, and say so.
    assert _url.read("rediss://h?ssl_min_version=772") == (
        "rediss",
        {"host": "h", "ssl_min_version": ssl.TLSVersion.TLSv1_3},
    )
    (target,) = Masters(["unix://u:p@/run/a%20b.sock?db=1"])._runtime.endpoints
    assert target.settings == {"path": "/run/a b.sock", "username": "u", "password": "p", "db": 1}
    (target,) = Masters(["redis://h/?username=u&password=p"])._runtime.endpoints
    assert target.settings == {"host": "h", "port": 6379, "username": "u", "password": "p"}


@pytest.mark.parametrize(("ours", "theirs"), [
    ("redis://u:p@h:1/2", "valkey://u:p@h:1/2"),
    ("rediss://u:p@h:1/2?ssl_cert_reqs=none", "valkeys://u:p@h:1/2?ssl_cert_reqs=none"),
    ("redis://u:p@h:1/2", valkey.Valkey(host="h", port=1, db=2, username="u", password="p", socket_timeout=3)),  # noqa: S106
    ("redis://u:p@h:1/2", valkey.asyncio.Valkey(host="h", port=1, db=2, username="u", password="p")),  # noqa: S106
    ("rediss://u:p@h:1/2?ssl_cert_reqs=required", valkey.Valkey.from_url("valkeys://u:p@h:1/2?ssl_cert_reqs=required")),
    ("unix:///run/v.sock", valkey.Valkey(unix_socket_path="/run/v.sock")),
])  # fmt: skip
def test_valkey_has_the_same_addresses_under_names_of_its_own(ours, theirs):
    """C17, and both worlds take them."""
    for masters in (Masters, AsyncMasters):
        (one,), (other,) = masters([ours])._runtime.endpoints, masters([theirs])._runtime.endpoints
        known = {name: other.settings.get(name) for name in one.settings}
        assert (known, one.kind, one.name) == (one.settings, other.kind, other.name)


@pytest.mark.parametrize(("wrong", "said"), [
    (f"redis://user:{SECRET}@10.0.0.3:6379/abc", "masters[1] (10.0.0.3:6379): redis://… has a database"),
    (f"redis://user:{SECRET}@10.0.0.3?foo=1", "masters[1] (10.0.0.3): redis://… has the option 'foo'"),
    (f"redis://:{SECRET}@10.0.0.3:port", "masters[1] (10.0.0.3): redis://… is no URL"),
    (f"redis://:{SECRET}@[::1]:1/abc", "masters[1] ([::1]:1): "),
    (f"redis://user:x/{SECRET}@10.0.0.3", "masters[1]: redis://… is no URL"),  # "user" would be part of a login
    (f"redis://{SECRET}?x@10.0.0.3", "masters[1]: redis://… is no URL"),
    (f"redis://h?a=b&{SECRET}@10.0.0.3", "masters[1]: redis://… has an option that is not known"),
    (f":{SECRET}@10.0.0.3", "masters[1]: the URL of a master begins with"),
    (7, "masters[1]: a master is a URL, a redis.Redis or a valkey.Valkey, not int"),
])  # fmt: skip
def test_which_of_several_urls_is_wrong_is_said(wrong, said):
    with pytest.raises(ConfigurationError) as caught:
        Masters([URLS[0], wrong, URLS[1]])
    assert str(caught.value).startswith(said)
    assert SECRET not in str(caught.value)


# Of nobody; expired, which does not matter to who only reads it.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBeDCCAR2gAwIBAgIUZVVpqPfDf6eEG63I4h2rc8aWO+swCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MB4XDTI2MTEyMjEwMTg0MloXDTI2MTEyMzEwMTg0
MlowETEPMA0GA1UEAwwGbm9ib2R5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
v96PL677yC3bMazC4pnrJL1Va7XNPnmCQfwg8TTBDOma0/v1B3H1JLco3hwhJkTW
4veCNtVg8R98/BRMKZTrxqNTMFEwHQYDVR0OBBYEFN7+hYKiTmFZQzLftLAFs53n
zI5wMB8GA1UdIwQYMBaAFN7+hYKiTmFZQzLftLAFs53nzI5wMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAOx1LBVNfnV8p9ILTyJlyDaIvqbIL9as
DF1HmCKTeR0zAiEA4qeWWQmWwaskugOVxZWrtIJIeDfnJxpF+uhcPXGbWlw=
-----END CERTIFICATE-----
"""


@pytest.fixture
def certificate(tmp_path):
    file = tmp_path / "certificate.pem"
    file.write_text(CERTIFICATE, encoding="ascii")
    return file


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_tls_file_that_cannot_be_used_is_refused_at_once_and_named(option, certificate, tmp_path):
    """No server is at fault, and no new try would cure it."""
    (tmp_path / "junk").write_text("junk", encoding="ascii")
    rest = {"ssl_certfile": str(certificate)} if option == "ssl_keyfile" else {}
    for file, why in [("missing", "No such file"), ("", "Is a directory"), ("junk", "PEM")]:
        settings: dict[str, Any] = {**rest, option: str(tmp_path / file)}
        query = "&".join(f"{name}={value}" for name, value in settings.items())
        for master in (
            f"rediss://10.0.0.1?{query}",
            *(world(host="10.0.0.1", ssl=True, **settings) for world in (redis.Redis, redis.asyncio.Redis)),
        ):
            with pytest.raises(ConfigurationError, match=f"10.0.0.1:6379.*{option}={tmp_path / file}.*{why}"):
                Masters([master])


@pytest.mark.parametrize(
    ("query", "said"),
    [("ssl_certfile={}", "ssl_certfile={}: no private key"), ("ssl_keyfile={}", "without ssl_certfile")],
)
def test_a_certificate_and_its_key_belong_together(query, said, certificate):
    with pytest.raises(ConfigurationError, match=re.escape(said.format(certificate))):
        Masters([f"rediss://10.0.0.1?{query.format(certificate)}"])


def test_settings_of_a_client_count_its_patience_does_not():
    """C17, R4: both worlds, and their retries and timeouts are left behind."""
    for world in (redis.Redis, redis.asyncio.Redis):
        client = world(host="10.0.0.1", port=7000, db=2, username="u", password=SECRET, ssl=True, socket_timeout=99)
        (endpoint,) = Masters([client])._runtime.endpoints
        assert endpoint.name == "10.0.0.1:7000"
        assert endpoint.kind is redis.SSLConnection
        assert {"host", "port", "db", "username", "password"} <= set(endpoint.settings)
        assert not {"socket_timeout", "retry", "decode_responses", "health_check_interval"} & set(endpoint.settings)
