"""A leader in a thread of its own.  With gunicorn: docs/howto/django.md."""

import logging
import threading

import pytest

from redlock import ConfigurationError
from redlock.adapters import wsgi
from redlock.adapters.wsgi import in_background
from tests.servers.look import each, eventually
from tests.servers.process import run, started


def test_it_leads_in_a_thread_until_it_is_stopped(masters):
    began = threading.Event()
    stopped = []

    def lead(term):
        began.set()
        term.wait_stop()
        stopped.append(masters.status("job").token == term.lease.token)

    stop = in_background(masters.leader("job", ttl=60), lead, on_stopped=lambda term: stopped.append(term.number))
    assert began.wait(20)
    stop()
    assert stopped[0] is True
    assert len(stopped) == 2
    assert masters.status("job").token is None
    stop()  # it has


@pytest.mark.parametrize(("ends", "said"), [
    (ValueError("no such queue"), "no such queue"),
    # In a thread it would end that, without a word.
    (SystemExit("no such queue"), "SystemExit ends only the term here: no such queue"),
])  # fmt: skip
def test_what_the_body_raises_is_logged_and_it_campaigns_again(masters, caplog, ends, said):
    again = threading.Event()
    numbers = []

    def lead(term):
        numbers.append(term.number)
        if len(numbers) == 1:
            raise ends
        again.set()
        term.wait_stop()

    with caplog.at_level(logging.ERROR, "redlock"):
        stop = in_background(masters.leader("job"), lead)
        assert again.wait(20)
        stop()
    assert numbers[0] < numbers[1]
    assert said in caplog.text
    assert masters.status("job").token is None


def test_a_campaign_that_is_impossible_is_logged_and_tried_again(servers, masters, caplog, monkeypatch):
    monkeypatch.setattr(wsgi, "_AGAIN", 0.05)
    began = threading.Event()
    each(servers, "config_set", "requirepass", "unknown")
    with caplog.at_level(logging.ERROR, "redlock"):
        stop = in_background(masters.leader("job"), lambda _: began.set())
        eventually(lambda: "no campaign" in caplog.text)
    each(servers, "config_set", "requirepass", "")
    assert began.wait(20)
    stop()


def test_wrong_arguments_are_refused_where_they_are_given(masters):
    election = masters.leader("job")

    async def coroutine_function(term):
        pass

    for arguments in (
        (election, "no function"),
        (election, None),
        (election, coroutine_function),
        (election, print, 5),
        (election, print, None, 5),
        (masters, print),
    ):
        with pytest.raises(ConfigurationError):
            in_background(*arguments)
    with pytest.raises(TypeError, match="nonsense"):
        in_background(election, print, nonsense=1)  # type: ignore[call-arg]


EXITS = """
import sys, threading, time
from redlock import Masters
from redlock.adapters.wsgi import in_background

began = threading.Event()

def lead(term):
    began.set()
    term.wait_stop()
    print("ended", flush=True)

in_background(Masters(sys.argv[1:], restart_guard=False).leader("job", ttl=60), lead)
assert began.wait(20)
print("exits", flush=True)
"""

FORKS = EXITS.replace(
    'print("exits", flush=True)',
    """\
import os
child = os.fork()
if child == 0:
    sys.exit(0)     # with the calls at exit that it has inherited
os.waitpid(child, 0)
print("exits", flush=True)
""",
)


def test_at_exit_the_lock_is_given_back(servers, masters, tmp_path):
    done = run("-c", EXITS, *servers.urls, cwd=tmp_path)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["exits", "ended"], "")
    assert masters.status("job").token is None


def test_a_forked_child_goes_on_with_nothing(servers, masters):
    with started("-c", FORKS, *servers.urls) as parent:
        assert parent.ends() == 0
        assert parent.lines == ["exits", "ended"]
    assert masters.status("job").token is None
