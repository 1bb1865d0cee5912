"""Forks and Ctrl-C: what only threads meet, so these do not ask for a `world`."""

import faulthandler
import os
import select
import signal
import sys
import threading
from unittest import mock

import pytest

from redlock import ConfigurationError, Masters, MultiLock
from redlock._io.waker import Waker
from tests.owners import witness
from tests.servers.look import all_up, each, eventually, lock_keys, nothing_left, pause, resume, take
from tests.servers.process import run, started
from tests.servers.waiter import NEVER, Waiting

pytestmark = [pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"), witness("R11")]


def in_child(work):
    """Fork, run ``work`` in the child, return its exit status."""
    pid = os.fork()
    if pid == 0:
        code = 99
        faulthandler.dump_traceback_later(10, exit=True)  # a child that hangs says where
        try:
            code = work() or 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_fork_while_another_thread_connects_for_the_first_time(redlock_servers):
    """The locks around the first use are held by a thread that the child does not have."""
    for _ in range(5):
        with Masters(redlock_servers.urls, restart_guard=False) as masters:

            def work():
                with masters.lock("busy", ttl=10):
                    pass

            def child():
                with masters.lock("the child's", ttl=10) as own:
                    return 0 if own.valid else 1

            thread = threading.Thread(target=work)
            with masters._runtime.making.lock:  # the worst moment, held still
                thread.start()
                assert in_child(child) == 0
            thread.join()


def test_a_child_that_is_forked_off_does_not_end_a_wait(redlock_servers, redlock_masters, others):
    """R24: it has the subscriptions of its parent, and closes its copies of them."""
    held = others.lock("job", ttl=30)
    take(held)
    waiting = Waiting(redlock_masters.lock("job", ttl=30, retry=NEVER))
    subscribed = [redlock_servers.client(i) for i in range(5)]
    eventually(lambda: all(one.pubsub_numsub("redlock:job:released")[0][1] for one in subscribed))

    def child():
        with redlock_masters.lock("another", ttl=30):  # connections of its own
            pass
        redlock_masters.close()
        return 0

    assert in_child(child) == 0
    held.release()
    assert waiting.end() is not None


def test_ctrl_c_while_the_first_operation_starts_the_thread(redlock_servers, monkeypatch):
    """There is one background thread, though whoever started it could not note it any more."""
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        if thread.name == "redlock-background":
            monkeypatch.undo()
            raise KeyboardInterrupt

    with Masters(redlock_servers.urls, restart_guard=False) as masters:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            masters.lock("job", ttl=10).acquire()
        for _ in range(2):
            with masters.lock("job", ttl=10):
                eventually(lambda: [thread.name for thread in threading.enumerate()].count("redlock-background") == 1)


# A signal handler that raises, again and again, while requests are packed: hiredis crashes if it packs a number then.
OFTEN = """
import signal, sys
from redlock import _connect
from redlock._core import wire
def strike(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, strike)
call = wire.acquire(wire.keys_for("redlock:", ["job"]), "t", 10.0, 1, 60.0)
struck = 0
while struck < 2000:
    try:
        signal.setitimer(signal.ITIMER_REAL, 2e-5)
        for _ in range(100):
            _connect.pack(call.words), _connect.pack(call.words_with_text)
        signal.setitimer(signal.ITIMER_REAL, 0)  # one that is late strikes in here, or never
    except KeyboardInterrupt:
        struck += 1
"""


def test_ctrl_c_while_a_request_is_packed():
    done = run("-c", OFTEN)
    assert (done.returncode, done.stderr) == (0, "")


WAITS = """
import sys
from redlock import Masters
masters = Masters(sys.argv[1:], restart_guard=False)
print("up", flush=True)
masters.lock("job", ttl=10).acquire()
"""


def test_ctrl_c_for_real(redlock_servers):
    """A process that waits for a held lock, and gets SIGINT: one traceback, no key, no hang."""
    each(redlock_servers, "set", "redlock:job", "somebody", px=60_000, masters=3)
    with started("-W", "error", "-c", WAITS, *redlock_servers.urls) as process:
        process.says("up")
        subscribed = [redlock_servers.client(i) for i in range(5)]
        eventually(lambda: all(one.pubsub_numsub("redlock:job:released")[0][1] for one in subscribed))
        process.popen.send_signal(signal.SIGINT)
        process.ends()
        assert process.lines[-1] == "KeyboardInterrupt"
    eventually(lambda: lock_keys(redlock_servers)[3:] == [set(), set()])


# -- what others have patched --------------------------------------------------------------------------------------


def taken_away(monkeypatch):
    monkeypatch.delattr(select, "poll")


def replaced(monkeypatch):
    monkeypatch.setattr(threading, "Lock", threading.RLock)


def test_a_waker_that_a_signal_handler_struck_while_it_was_made_is_dropped_in_silence():
    Waker.__new__(Waker).close()


def test_a_pipe_that_is_closed_already(monkeypatch):
    """The `os.close` of gevent refuses -1 in its own way, and Python would print that for each `Masters`."""
    waker = Waker()
    waker.close()
    monkeypatch.setattr(os, "close", mock.Mock(side_effect=ValueError))
    waker.close()


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("patch", "says"), [(taken_away, "eventlet"), (replaced, "patch first of all")], ids=["eventlet", "gevent-too-late"]
)
def test_what_threads_wait_with_was_patched(redlock_servers, monkeypatch, patch, says, made):
    """A sentence when the masters are made, or at their first use: no AttributeError, and no worker that stands still."""

    def use():
        with Masters(redlock_servers.urls, restart_guard=False) as masters:
            if made:
                patch(monkeypatch)
            masters.status("job")

    if not made:
        patch(monkeypatch)
    try:
        with pytest.raises(ConfigurationError, match=says):
            use()
    finally:
        monkeypatch.undo()


@pytest.mark.parametrize("enter", [MultiLock.acquire, MultiLock.__enter__], ids=["acquire", "with"])
def test_what_threads_wait_with_was_patched_after_the_masters_were_used(redlock_servers, monkeypatch, enter):
    """It waited in a real lock for a holder that stood still meanwhile, and blamed others of this process."""
    with Masters(redlock_servers.urls, restart_guard=False) as masters:
        lock = masters.lock("job", ttl=30, timeout=20)
        lock.acquire()
        replaced(monkeypatch)
        with pytest.raises(ConfigurationError, match="patch first of all"):
            enter(masters.lock("another"))
        lock.release()
        monkeypatch.undo()
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.parametrize("waits_for", ["answers", "its turn"])
def test_a_signal_handler_that_raises_generatorexit_leaves_nothing(redlock_servers, waits_for):
    """P7.  To a generator it means that it was thrown away, and may not even send."""

    def strike(number, frame):
        raise GeneratorExit

    def strikes(thread):
        waits = "_lead" if waits_for == "answers" else "sleep"
        eventually(lambda: sys._current_frames()[thread].f_code.co_name == waits)
        signal.pthread_kill(thread, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, strike)
    try:
        with Masters(redlock_servers.urls, restart_guard=False, node_timeout=5, max_ttl=60) as masters:
            eventually(lambda: all_up(masters))
            lock, other = masters.lock("job", ttl=30), masters.lock("job", ttl=30, bound=False)
            if waits_for == "answers":
                pause(redlock_servers)
            else:
                take(other)
            threading.Thread(target=strikes, args=(threading.get_ident(),)).start()
            with pytest.raises(GeneratorExit):
                lock.acquire()
            if waits_for == "answers":
                resume(redlock_servers)
            else:
                other.release()
            eventually(lambda: nothing_left(redlock_servers))
            with masters.lock("job", ttl=30, timeout=5):  # nobody stands in line
                pass
    finally:
        signal.signal(signal.SIGUSR1, before)
