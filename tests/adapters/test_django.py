"""Settings and management commands, with the real Django in processes of its own.  With gunicorn: docs/howto/django.md."""

import os
import re
import signal
from pathlib import Path

from tests.servers.look import each, kill
from tests.servers.process import run, started

MANAGE = ["-m", "tests.adapters.shop.manage"]
ROOT = Path(__file__).parent.parent.parent


def environment(servers, **more):
    return {"REDLOCK_MASTERS": ",".join(servers.urls), "PYTHONWARNINGS": "error", **more}


def manage(servers, *arguments, **more):
    return run(*MANAGE, *arguments, cwd=ROOT, environment=environment(servers, **more))


# -- settings ----------------------------------------------------------------------------------------

SETTINGS = """
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["redlock.adapters.django"], {settings})
django.setup()
from django.core import checks
from redlock import Masters
from redlock.adapters.django import masters
for error in checks.run_checks():
    print(error.id, error.msg)
"""


def checked(settings, tmp_path, then=""):
    done = run("-c", SETTINGS.format(settings=settings) + then, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout


WRONG_SETTINGS = [
    ("", 'settings.REDLOCK is not set: it needs "MASTERS", a list or dict of URLs, and may have "OPTIONS"'),
    ("REDLOCK=[]", "settings.REDLOCK is no dict: it needs"),
    ("REDLOCK={}", "settings.REDLOCK has nothing: it needs"),
    ("REDLOCK={'MASTERS': ['redis://a'], 'TTL': 3}", "settings.REDLOCK has MASTERS, TTL: it needs"),
    ("REDLOCK={'MASTERS': ['redis://a'], 'OPTIONS': {'ttl': 3}}", "OPTIONS has ttl; allowed are agreement, confirm_expiry, connect_timeout,"),
    ("REDLOCK={'MASTERS': ['redis://a'], 'OPTIONS': 3}", "OPTIONS is no dict; allowed are agreement, confirm_expiry, connect_timeout,"),
    ("REDLOCK={'MASTERS': ['redis://a'], 'OPTIONS': {'node_timeout': 'x'}}", "settings.REDLOCK: node_timeout='x': allowed"),
    ("REDLOCK={'MASTERS': []}", "settings.REDLOCK: masters is empty"),
    ("REDLOCK={'MASTERS': 'redis://:secret@a'}", "settings.REDLOCK: masters is a str"),
    ("REDLOCK={'MASTERS': ['redis://:secret@a', 'redis://:secret@a']}", "are the same server, a:6379"),
    ("REDLOCK={'MASTERS': ['redis://:secret@a:b']}", "settings.REDLOCK: redis://… is no URL of a master"),
]  # fmt: skip
EACH = """
from django.test import override_settings
for wrong in {settings}:
    with override_settings(**wrong):
        print(*(f"{{error.id}} {{error.msg}}" for error in checks.run_checks()))
"""


def test_wrong_settings_are_found_by_the_check(tmp_path):
    each_one = ", ".join(f"dict({settings})" for settings, _ in WRONG_SETTINGS)
    first, *printed = checked("", tmp_path, EACH.format(settings=f"[{each_one}]")).splitlines()
    assert first == printed[0]
    for line, (_, said) in zip(printed, WRONG_SETTINGS, strict=True):
        assert line.startswith("redlock.E001 ")
        assert said in line
        assert "secret" not in line


def test_there_is_one_object_in_a_process(tmp_path):
    then = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print(len(set(pool.map(lambda _: masters(), range(100)))), type(masters()) is Masters)
"""
    assert checked("REDLOCK={'MASTERS': ['redis://a']}", tmp_path, then) == "1 True\n"


def test_a_test_that_overrides_the_settings_gets_others(tmp_path):
    then = """
from django.test import override_settings
before = masters()
with override_settings(REDLOCK={"MASTERS": ["redis://b"]}):
    print(masters())
print(masters(), masters() is before)
"""
    printed = checked("REDLOCK={'MASTERS': ['redis://a']}", tmp_path, then)
    assert printed == "<Masters b:6379>\n<Masters a:6379> False\n"


def test_the_check_is_one_of_the_project(servers, tmp_path):
    done = manage(servers, "check")
    assert (done.returncode, done.stderr) == (0, "")
    wrong = "INSTALLED_APPS = ['redlock.adapters.django']\nREDLOCK = {'MASTERS': ['http://:secret@a']}\n"
    (tmp_path / "wrong.py").write_text(wrong, encoding="utf-8")
    done = run("-m", "django", "check", "--settings=wrong", "--pythonpath=.", cwd=tmp_path)
    assert done.returncode == 1
    assert "ERRORS:\n?: (redlock.E001) settings.REDLOCK: http://… is no URL of a master" in done.stderr
    assert "secret" not in done.stderr


# -- management commands -----------------------------------------------------------------------------


WRONG = """
from redlock import ConfigurationError
from redlock.adapters.django import one_at_a_time

for arguments in ({"ttl": -1}, {"ttl": 1e10}, {"max_hold": "5"}, {"name": ""}, {"name": print}, {"nonsense": 1}):
    try:
        one_at_a_time(**arguments)
    except (ConfigurationError, TypeError) as error:
        print(type(error).__name__, next(iter(arguments)) in str(error))
try:
    one_at_a_time()("no method")
except ConfigurationError as error:
    print(error)
one_at_a_time("named", ttl=600, max_hold=3600, timeout=5, hold_at_least=600)  # right with some settings
"""


def test_wrong_options_of_a_command_are_refused_where_they_are_given(tmp_path):
    """Long before the command runs, and without settings."""
    done = run("-c", WRONG, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *["ConfigurationError True"] * 5,
        "TypeError True",
        "'no method' cannot be called: one_at_a_time(...) is put above a handle method",
    ]


def test_a_command_runs_one_at_a_time(servers, masters):
    with started(*MANAGE, "sweep", "60", environment=environment(servers)) as first:
        assert re.fullmatch(r"sweeps command:sweep \d+", first.says("sweeps"))
        refused = manage(servers, "sweep", "0")
        assert (refused.returncode, refused.stdout) == (75, "")
        assert refused.stderr.startswith(
            f"CommandError: 'command:sweep' not acquired in 1 attempt: held by {os.uname().nodename}/{first.popen.pid}"
        )
        assert "Traceback" not in refused.stderr
        first.popen.send_signal(signal.SIGTERM)
        assert first.ends() == 128 + signal.SIGTERM
    assert masters.status("command:sweep").token is None  # at once, not after its TTL
    done = manage(servers, "sweep", "0")
    assert (done.returncode, done.stdout.split()[-1]) == (0, "swept")


def test_a_lock_that_is_lost_ends_the_command(servers):
    with started(*MANAGE, "sweep", "60", environment=environment(servers)) as command:
        command.says("sweeps")
        each(servers, "set", "redlock:command:sweep", "f" * 40, px=20_000)
        assert command.ends() == 70
        assert command.said("CommandError: ")
        assert not command.said("Traceback")
    each(servers, "delete", "redlock:command:sweep")


def test_too_few_masters_are_another_exit_code(servers):
    kill(servers, 3)
    done = manage(servers, "sweep", "0")
    assert (done.returncode, done.stdout) == (69, "")
    assert "3 of 5 masters did not vote" in done.stderr


CALLS = """
import signal
from django.conf import settings
settings.configure(REDLOCK={"MASTERS": URLS, "OPTIONS": {"restart_guard": False}})
from redlock import NotAcquired
from redlock.adapters.django import masters, one_at_a_time

class Command:
    @one_at_a_time("named", timeout=5)
    def handle(self, *args, lease, **options):
        print(lease.name, args, options, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        with masters().lock("inner", timeout=0):
            raise ValueError

    @one_at_a_time("outer")
    def inner(self, lease):
        with masters().lock("other", timeout=0):
            pass

for name in ("named", "outer"):
    try:
        Command().handle("argument", option=1)
    except ValueError:
        print(masters().status("named").token, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)

elsewhere = masters().lock("other", bound=False)
elsewhere.acquire()
try:
    Command().inner()
except NotAcquired as refused:
    print(refused.name)
elsewhere.release()
"""


def test_what_the_body_raises_is_its_own_affair(servers, tmp_path):
    done = run("-c", CALLS.replace("URLS", repr(servers.urls)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    twice = "named ('argument',) {'option': 1} False\nNone True\n" * 2
    assert done.stdout == twice + "other\n"
