"""Which masters, with which credentials: arguments, environment, file.  And never a password in a message."""

from __future__ import annotations

import argparse
import re
from urllib.parse import urlsplit

import pytest

from redlock import ConfigurationError, Masters
from redlock._cli import config, run
from redlock._cli.config import deployment, split
from redlock._health import naming

SECRET = "geheim/#?"  # noqa: S105 - with what has to be percent-encoded


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("REDLOCK_MASTERS", "REDLOCK_USERNAME", "REDLOCK_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def given(**options):
    nothing = {"config": None, "prefix": None, "max_ttl": None, "node_timeout": None, "no_restart_guard": False,
               "confirm_expiry": False}  # fmt: skip
    return argparse.Namespace(**(nothing | options))


@pytest.fixture
def file(tmp_path):
    def write(text: str):
        path = tmp_path / "redlock.toml"
        path.write_text(text, encoding="utf-8")
        return given(config=str(path))

    return write


ENV = {"REDLOCK_MASTERS": "redis://env1, redis://env2 ,"}
PASSWORD, USER = {"REDLOCK_PASSWORD": SECRET}, {"REDLOCK_USERNAME": "locker"}
QUOTED = "geheim%2F%23%3F"


@pytest.mark.parametrize(("arguments", "variables", "text", "urls"), [
    pytest.param([], ENV, None, ["redis://env1", "redis://env2"], id="environment"),
    pytest.param([], ENV, 'masters = ["redis://file"]', ["redis://file"], id="the-file-wins-over-the-environment"),
    pytest.param(["redis://argument"], ENV, 'masters = ["redis://file"]', ["redis://argument"],
        id="arguments-win-over-the-file"),
    pytest.param(["redis://a"], {}, 'password = "p"', ["redis://:p@a"], id="a-file-may-leave-the-masters-to-arguments"),
    pytest.param([], ENV, 'password = "p"', ["redis://:p@env1", "redis://:p@env2"], id="or-to-the-environment"),
    pytest.param([], {}, '\ufeffmasters = ["redis://a"]', ["redis://a"], id="it-may-begin-with-a-byte-order-mark"),
    # They go where there are none.
    pytest.param(
        ["redis://10.0.0.1", "redis://alice@10.0.0.2", "redis://bob:own@10.0.0.3", "unix:///run/redis.sock"], PASSWORD,
        None,
        [f"redis://:{QUOTED}@10.0.0.1", f"redis://alice:{QUOTED}@10.0.0.2", "redis://bob:own@10.0.0.3",
         f"unix://:{QUOTED}@/run/redis.sock"],
        id="a-password-from-the-environment"),
    pytest.param(["redis://10.0.0.1"], PASSWORD | USER, None, [f"redis://locker:{QUOTED}@10.0.0.1"],
        id="user-and-password-from-the-environment"),
    # One that needs no password: it would be `default` that is asked, and may do more.
    pytest.param(["redis://10.0.0.1", "redis://:own@10.0.0.2"], USER, None,
        ["redis://locker@10.0.0.1", "redis://:own@10.0.0.2"], id="a-user-without-a-password-is-no-other-user"),
    pytest.param(
        [], {},
        """username = "locker"
        masters = [
            "redis://10.0.0.1:6379/1", { url = "redis://10.0.0.2", username = "an other" }, "redis://alice@10.0.0.3",
            "redis://:own@10.0.0.4", "unix:///run/redis.sock",
        ]""",
        ["redis://locker@10.0.0.1:6379/1", "redis://an%20other@10.0.0.2", "redis://alice@10.0.0.3",
         "redis://:own@10.0.0.4", "unix://locker@/run/redis.sock"],
        id="nor-one-in-the-file"),
    # C20: what stands before it would be taken for a user, and shown as part of the path.
    pytest.param(
        ["unix:///run/redis@1.sock", "unix://alice@/run/redis@1.sock", "unix://:own@/run/a@b.sock?db=1"], PASSWORD, None,
        [f"unix://:{QUOTED}@/run/redis@1.sock", f"unix://alice:{QUOTED}@/run/redis@1.sock",
         "unix://:own@/run/a@b.sock?db=1"],
        id="an-at-sign-in-the-path-of-a-socket-is-no-login"),
])  # fmt: skip
def test_which_addresses_with_which_login(monkeypatch, file, arguments, variables, text, urls):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = deployment(arguments, given() if text is None else file(text)).urls
    assert found == tuple(urls)
    for url in found:
        assert not any(secret in repr(Masters([url])) for secret in (SECRET, QUOTED))


def test_a_whole_file(file, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text(SECRET + "\n", encoding="utf-8")
    monkeypatch.setenv("OF_THE_FOURTH", "fourth")
    wanted = deployment(
        [],
        file(f"""
        username = "locker"
        password = {SECRET!r}
        tls_ca = "/etc/ca file.pem"
        max_ttl = 30
        prefix = "p:"
        restart_guard = false
        node_timeout = 0.1
        outage_timeout = inf
        guard = 0
        connect_timeout = 1
        drift_factor = 0.02
        fence_ttl = 100
        confirm_expiry = true
        masters = [
            "rediss://10.0.0.1:6380/2?ssl_cert_reqs=required",
            {{ url = "redis://10.0.0.2", username = "other" }},
            {{ url = "redis://10.0.0.3", password_file = "{tmp_path}/secret", password = "p" }},
            {{ url = "redis://own:mine@10.0.0.4" }},
        ]
    """),
    )
    first, second, third, fourth = wanted.urls
    assert (
        first
        == "rediss://locker:geheim%2F%23%3F@10.0.0.1:6380/2?ssl_cert_reqs=required&ssl_ca_certs=/etc/ca%20file.pem"
    )
    assert second == "redis://other:geheim%2F%23%3F@10.0.0.2"
    assert urlsplit(third).password == "p"  # noqa: S105 - the nearest one
    assert fourth == "redis://own:mine@10.0.0.4"
    assert wanted.options == {
        "max_ttl": 30, "prefix": "p:", "restart_guard": False, "node_timeout": 0.1, "outage_timeout": None,
        "confirm_expiry": True, "guard": 0, "connect_timeout": 1, "drift_factor": 0.02, "fence_ttl": 100,
    }  # fmt: skip
    assert wanted.databases
    assert SECRET not in repr(wanted)
    # What is given as an argument wins.
    again = deployment([], given(config=str(tmp_path / "redlock.toml"), max_ttl=5.0, outage_timeout=7.0, prefix=""))
    assert again.options["outage_timeout"] == 7.0
    assert again.options["max_ttl"] == 5.0
    assert again.options["prefix"] == ""


@pytest.mark.parametrize(
    "url", ["redis://hun/ter@h", "redis://u:hun/ter@h", "redis://u:12/ter@h", "unix://u:hun/ter@/run/redis.sock"]
)
def test_a_slash_in_a_password_is_refused_and_not_shown(monkeypatch, url):
    monkeypatch.setenv("REDLOCK_PASSWORD", "hunter2")
    with pytest.raises(ConfigurationError, match="percent-encode") as caught:
        Masters(deployment([url], given()).urls)
    assert "hun" not in str(caught.value)
    assert "ter@" not in str(caught.value)


@pytest.mark.parametrize("default", ['password = "common"', 'password_file = "{}/common"', 'password_env = "COMMON"'])
@pytest.mark.parametrize("own", ['password = "own"', 'password_file = "{}/own"', 'password_env = "OWN"'])
def test_a_masters_own_password_wins_over_that_of_all_whatever_their_kinds(file, tmp_path, monkeypatch, default, own):
    for word in ("common", "own"):
        (tmp_path / word).write_text(f"{word}\n", encoding="utf-8")
        monkeypatch.setenv(word.upper(), word)
    master = f'{{ url = "redis://b", {own} }}'
    urls = deployment([], file(f'{default}\nmasters = ["redis://a", {master}]'.replace("{}", str(tmp_path)))).urls
    assert urls == ("redis://:common@a", "redis://:own@b")


@pytest.mark.parametrize(("url", "named"), [
    ("redis://h", False), ("redis://h/0", False), ("redis://h?db=0", False), ("redis://h/2?db=0", False),
    ("redis://h/2", True), ("redis://h?db=2", True),
    ("unix:///run/redis.sock", False), ("unix:///run/redis.sock?db=2", True),
])  # fmt: skip
def test_a_database_is_named_in_the_path_or_in_the_query(url, named):
    """Then `redlock-check --acl` grants SELECT."""
    assert deployment([url], given()).databases is named


@pytest.mark.parametrize("variable", ["REDLOCK_USERNAME", "REDLOCK_PASSWORD", "MINE"])
def test_a_variable_that_is_not_utf_8_is_named(monkeypatch, file, variable):
    monkeypatch.setenv("REDLOCK_PASSWORD", "geheim")
    monkeypatch.setenv(variable, "caf\udce9")
    names_it = file('password_env = "MINE"\nmasters = ["redis://a"]') if variable == "MINE" else given()
    with pytest.raises(ConfigurationError, match=f"{variable} is not UTF-8") as caught:
        deployment(["redis://a"], names_it)
    assert "caf" not in str(caught.value)


@pytest.mark.parametrize(("text", "says"), [
    ("", "the environment variable REDLOCK_PASSWORD is empty: check the secret"),
    ('password_env = "MINE"', "toml, master 1: password_env names a variable that is empty"),
    ('password_file = "{}/secret"', "toml, master 1: password_file: it is empty"),
])  # fmt: skip
def test_an_empty_password_is_told_and_not_tried(monkeypatch, file, tmp_path, text, says):
    """The secret was not there when the variable was set: else each master would say that the password is wrong."""
    (tmp_path / "secret").write_text("\n", encoding="utf-8")
    for name in ("REDLOCK_PASSWORD", "MINE"):
        monkeypatch.setenv(name, "")
    options = file(text.replace("{}", str(tmp_path)))
    with pytest.raises(ConfigurationError, match=says):
        deployment(["redis://locker@a"], options)
    assert deployment(["redis://locker:own@a"], options).urls == ("redis://locker:own@a",)  # it needs none of these


def test_masters_that_were_given_and_are_empty_are_not_those_of_the_environment(monkeypatch):
    """``--masters "$UNSET"``: the lock would be taken somewhere else."""
    monkeypatch.setenv("REDLOCK_MASTERS", "redis://env")
    for masters in ([""], [" , "], ["redis://a", ""]):
        with pytest.raises(ConfigurationError, match="--masters"):
            deployment([url for some in masters for url in split(some)], given(masters=masters))
    assert deployment([], given(masters=[])).urls == ("redis://env",)


@pytest.mark.parametrize(("text", "says"), [
    ("masters = [", "is not TOML"),
    ("", "names no masters"),
    ("masters = []", "names no masters"),
    ("masters = 3", "names no masters"),
    ("masters = [3]", "master 1: write a URL"),
    ('masters = [{ username = "x" }]', "master 1: write a URL"),
    ('masters = ["redis://a", { url = "redis://b", pasword = "geheim" }]', "master 2: 'pasword' is not known"),
    ('masters = ["redis://a"]\nmax_tll = 3', "'max_tll' is not known, allowed are"),
    ('masters = ["redis://a"]\nmax_ttl = "3"', "max_ttl has to be a number, not '3'$"),
    ('masters = ["redis://a"]\nmax_ttl = -3',
     r"toml: max_ttl = -3: allowed is a number of seconds, more than 0 and at most 1e\+09$"),
    ('masters = ["redis://a"]\nmax_ttl = nan', "toml: max_ttl = nan: allowed is"),
    ('masters = ["redis://a"]\nmax_ttl = inf', "toml: max_ttl = inf: allowed is"),
    *[(f'masters = ["redis://a"]\n{key} = 0', f"toml: {key} = 0: allowed is")
      for key in ("node_timeout", "connect_timeout", "fence_ttl")],
    ('masters = ["redis://a"]\noutage_timeout = "never"', "outage_timeout has to be a number, not 'never'$"),
    ('masters = ["redis://a"]\nguard = -1', r"toml: guard = -1: allowed is .*at most 1e\+09, or 0$"),
    ('masters = ["redis://a"]\noutage_timeout = -1', "toml: outage_timeout = -1: allowed is"),
    ('masters = ["redis://a"]\nmax_ttl = true', "max_ttl has to be a number, not True$"),
    ('masters = ["redis://a"]\nrestart_guard = 1', "restart_guard has to be true or false, not 1$"),
    ('masters = ["redis://a"]\nprefix = 0x' + "f" * 5000, "prefix has to be text"),
    ('masters = ["redis://a"]\nmax_ttl' + ".a" * 500 + " = 1", "max_ttl has to be a number, not "),
    ('masters = ["redis://a"]\npassword = 12345', "password has to be text"),
    ('masters = ["redis://a"]\nusername = 12345', "username has to be text$"),
    ('masters = ["redis://a"]\npassword_env = "NOT_SET"',
     "toml, master 1: password_env names a variable that is not set"),
    ('masters = ["redis://a", { url = "redis://b", password_env = "geheim" }]', "master 2: password_env names a var"),
    ('masters = ["redis://a"]\npassword_file = "/does/not/exist"', "toml, master 1: password_file: No such file"),
    ('masters = ["redis://a", { url = "redis://b", password_file = "geheim" }]',
     "master 2: password_file: No such file"),
    ('masters = ["redis://a"]\npassword_file = "/dev/null/geheim"', "master 1: password_file: Not a directory"),
    ('masters = ["redis://a"]\npassword_file = "geheim\\u0000"', "master 1: password_file: not the name of a file"),
    ('masters = [{ name = "lock-1", url = "redis://a" }, "redis://b"]', "a name of its own, or none of them"),
    ("max_ttl = " + "9" * 5000, "is not TOML that can be read: a number in it is too long"),
    ("x = " + "[" * 2000 + "]" * 2000, "is not TOML that can be read: it is nested too deeply"),
    ("x = " + "{a=" * 2000 + "1" + "}" * 2000, "is not TOML that can be read: it is nested too deeply"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_the_place_and_without_the_password(file, text, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        deployment([], file(text))
    assert "geheim" not in str(caught.value)
    assert "12345" not in str(caught.value)


def test_what_belongs_to_one_command_is_no_part_of_the_file_that_all_share(file):
    """In a file, ``fair`` would be for jobs with ``--slots`` as well, which refuse it."""
    assert {*config._OPTIONS} == {*(Masters.__init__.__kwdefaults__ or ())} - {"timeout", "owner", "observer"}
    no_keys = {"help", "name", "config", "no_wait", "no_restart_guard"}
    options = {action.dest for action in run.parser()._actions} - no_keys - config.KEYS.keys()
    assert {"fair", "shared", "ttl", "wait"} < options
    for key in options:
        says = f"toml: '{key}' belongs to one command, and the file to all: use redlock-run --{key.replace('_', '-')}$"
        with pytest.raises(ConfigurationError, match=says):
            deployment([], file(f'masters = ["redis://a"]\n{key} = true'))


@pytest.mark.parametrize(("config", "says"), [
    ("redis://u:geheim@h", "redis://***@h: No such file"),
    ("redis://h?password=geheim", "redis://h?password=***: No such file"),
    ("u:gehe@im@h", "***@h: No such file"),
    ("/does/not/exist@h.toml", "/does/not/exist@h.toml: No such file"),  # no address at all
    ("/does/not/exist", "/does/not/exist: No such file"),
])  # fmt: skip
def test_an_address_in_the_place_of_the_file_shows_no_password(config, says):
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        deployment([], given(config=config))


NAMED = {"lock-1": "redis://a:6379", "lock-2": "redis://b:6379"}


def test_names_come_from_arguments_the_environment_and_the_file(monkeypatch, file):
    texts = [f"{name}={url}" for name, url in NAMED.items()]
    assert deployment(texts, given()).masters == NAMED
    monkeypatch.setenv("REDLOCK_MASTERS", ",".join(texts))
    assert deployment([], given()).masters == NAMED
    tables = "".join(f'[[masters]]\nname = "{name}"\nurl = "{url}"\n' for name, url in NAMED.items())
    assert deployment([], file(f'agreement = "warn"\n{tables}')).masters == NAMED
    Masters(deployment([], file(f'agreement = "warn"\n{tables}')).masters).close()


def test_an_address_with_an_equals_sign_has_no_name_for_that():
    url = "rediss://a:6379?ssl_ca_certs=/etc/ssl"
    assert naming.masters([url]) == [url]
    assert naming.masters([f"lock-1={url}"]) == {"lock-1": url}


@pytest.mark.parametrize("addresses", [
    ["lock-1=redis://:geheim@a", "redis://:geheim@b"],
    ["lock-1=redis://:geheim@a", "lock-1=redis://:geheim@b"],
    ["=redis://:geheim@a"],
])  # fmt: skip
def test_names_that_cannot_be_right_are_refused_without_the_password(addresses):
    with pytest.raises(ConfigurationError) as refused:
        Masters(deployment(addresses, given()).masters)
    assert "geheim" not in str(refused.value)
