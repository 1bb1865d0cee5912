"""Many threads, forks, interruptions, ends: what a lock library meets inside one process."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import linecache
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import redlock
from redlock import Masters, NotHeld, RedlockError
from tests.servers.look import all_up, eventually, lock_keys, nothing_left, take


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_many_threads_one_counter(redlock_servers, redlock_masters):
    """P1 inside one process, through one object, and nothing left (P7)."""
    lock = redlock_masters.lock("counter", ttl=10)
    counter = 0
    inside = 0

    def work():
        nonlocal counter, inside
        for _ in range(10):
            with lock:
                inside += 1
                assert inside == 1
                seen = counter
                time.sleep(0.0005)
                counter = seen + 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter == 80
    eventually(lambda: nothing_left(redlock_servers))


def test_many_threads_share_one_connection_a_master(redlock_servers, redlock_masters):
    eventually(lambda: all_up(redlock_masters))
    clients = redlock_servers.client(0).info("clients")["connected_clients"]
    errors = []

    def work(name):
        try:
            lock = redlock_masters.lock(name, ttl=10)
            for _ in range(50):
                with lock as lease:
                    assert lease.valid
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"job {i}",)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert redlock_servers.client(0).info("clients")["connected_clients"] == clients
    eventually(lambda: nothing_left(redlock_servers))


def test_threads_under_faults_get_their_own_answers(redlock_servers):
    """Connections break under 16 threads; nobody is handed somebody else's vote, nothing stays behind."""
    stop = threading.Event()
    errors: list[BaseException] = []
    granted = [0]
    inside: dict[str, int] = {}
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.2) as masters:

        def work(name):
            lock = masters.lock(name, ttl=10)
            while not stop.is_set():
                try:
                    with lock:
                        inside[name] = inside.get(name, 0) + 1
                        assert inside[name] == 1
                        granted[0] += 1
                        inside[name] -= 1
                except redlock.QuorumUnreachable:
                    pass
                except BaseException as error:  # noqa: BLE001
                    errors.append(error)
                    return

        threads = [threading.Thread(target=work, args=(f"job {i % 8}",)) for i in range(16)]
        for thread in threads:
            thread.start()
        choose = random.Random(1)
        for _ in range(40):
            with contextlib.suppress(Exception):
                redlock_servers.client(choose.randrange(5)).client_kill_filter(_type="normal")
            time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert granted[0] > 50
        eventually(lambda: nothing_left(redlock_servers))


def test_close_leaves_no_thread_and_no_descriptor(redlock_servers):
    gc.collect()
    before, threads = descriptors(), set(threading.enumerate())
    for _ in range(3):
        masters = Masters(redlock_servers.urls, restart_guard=False)
        with masters.lock("job", ttl=10):
            pass
        masters.close()
        masters.close()
        assert set(threading.enumerate()) == threads
        assert descriptors() == before
        with pytest.raises(RedlockError, match="closed"):
            masters.lock("job", ttl=10).acquire()


def test_close_does_not_wait_for_a_master_that_hangs_while_connecting(redlock_servers):
    redlock_servers.pause(0)
    masters = Masters(redlock_servers.urls, restart_guard=False, connect_timeout=20.0)
    with masters.lock("job", ttl=10):
        pass
    began = time.monotonic()
    masters.close()
    assert time.monotonic() - began < 5
    redlock_servers.resume(0)


def test_unused_masters_open_nothing(redlock_servers):
    before = descriptors(), set(threading.enumerate())
    masters = Masters(redlock_servers.urls)
    masters.lock("job")
    assert (descriptors(), set(threading.enumerate())) == before
    masters.close()


def test_close_ends_whoever_waits(redlock_servers, redlock_masters):
    with redlock_masters.lock("job", ttl=10):
        masters = Masters(redlock_servers.urls, restart_guard=False)
        ended = []

        def wait():
            try:
                masters.lock("job", ttl=10).acquire()
            except RedlockError as error:
                ended.append(error)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        masters.close()
        for thread in threads:
            thread.join(5)
        assert len(ended) == 4


def test_dropped_without_close_it_goes_away(redlock_servers):
    gc.collect()
    before, threads = descriptors(), set(threading.enumerate())
    masters = Masters(redlock_servers.urls, restart_guard=False)
    with masters.lock("job", ttl=10):
        pass
    del masters
    gc.collect()
    eventually(lambda: set(threading.enumerate()) == threads)
    eventually(lambda: gc.collect() >= 0 and descriptors() == before)


def in_child(work) -> int:
    """Fork, run ``work`` in the child, return its exit status."""
    pid = os.fork()
    if pid == 0:
        code = 99
        faulthandler.dump_traceback_later(10, exit=True)    # a child that hangs says where
        try:
            code = work() or 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork(redlock_servers, redlock_masters):
    """A child neither uses the sockets of its parent nor holds, extends or releases its leases."""
    eventually(lambda: all_up(redlock_masters))
    lock = redlock_masters.lock("job", ttl=10)
    lease = take(lock)

    def child() -> int:
        if lock.owned() or lease.valid or lease.lost or lease.remaining():
            return 1
        for call in (lock.release, lock.extend):
            try:
                call()
            except NotHeld:
                continue
            return 2
        if redlock_masters.lock("job", ttl=10).acquire(timeout=0.05) is not None:
            return 3
        with redlock_masters.lock("the child's", ttl=10) as own:
            if not own.valid:
                return 4
        redlock_masters.close()
        return 0

    assert in_child(child) == 0
    assert lock.owned()
    assert lock.extend().valid
    lock.release()
    for _ in range(20):
        with lock:
            pass
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_while_other_threads_are_at_work(redlock_servers, redlock_masters):
    stop = threading.Event()

    def work():
        lock = redlock_masters.lock("busy", ttl=10)
        while not stop.is_set():
            with lock:
                pass

    thread = threading.Thread(target=work)
    thread.start()

    def child() -> int:
        with redlock_masters.lock("the child's", ttl=10) as own:
            return 0 if own.valid else 1

    try:
        assert [in_child(child) for _ in range(10)] == [0] * 10
    finally:
        stop.set()
        thread.join()
    eventually(lambda: nothing_left(redlock_servers))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_while_another_thread_connects_for_the_first_time(redlock_servers):
    """The locks around the first use are held by a thread that the child does not have."""
    for _ in range(20):
        with Masters(redlock_servers.urls, restart_guard=False) as masters:

            def work():
                with masters.lock("busy", ttl=10):
                    pass

            def child() -> int:
                with masters.lock("the child's", ttl=10) as own:
                    return 0 if own.valid else 1

            thread = threading.Thread(target=work)
            with masters._making.lock:       # the worst moment, held still
                thread.start()
                assert in_child(child) == 0
            thread.join()


class _Interrupt:
    """Raises KeyboardInterrupt at the n-th line that this library executes in this thread.

    Ctrl-C comes between two bytecodes, wherever; a trace function can put it at every line in turn.
    """

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""
        self._package = os.path.dirname(redlock.__file__) + os.sep

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(self._package):
            return None
        # Leaving a `with` and entering a `try` are lines of their own for a trace function, but not places
        # where the interpreter looks for signals (that is after calls and on jumps back): nothing can
        # strike between the body of a `with` and its end.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not text.lstrip().startswith(("with ", "try:")):
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["acquire", "release", "with"])
def test_ctrl_c_at_every_line(redlock_servers, what):
    """R11: wherever it strikes, no key stays, and the next user of the same links is served right."""
    with Masters(redlock_servers.urls, restart_guard=False, node_timeout=1.0) as masters:
        eventually(lambda: all_up(masters))
        with masters.lock("warm", ttl=10):
            pass
        at, struck = 0, 0
        while True:
            at += 1
            lock = masters.lock("job", ttl=10)
            other = masters.lock("other", ttl=10)
            if what == "release":
                lock.acquire()
            lease = None
            interrupt = _Interrupt(at)
            previous = sys.gettrace()
            sys.settrace(interrupt)
            try:
                if what == "acquire":
                    lease = lock.acquire()
                elif what == "release":
                    lock.release()
                else:
                    with lock:
                        pass
            except KeyboardInterrupt:
                struck += 1
            finally:
                sys.settrace(previous)
            if interrupt.left > 0:
                break       # it was over before line number `at`
            if lease is not None or (what == "release" and lock.owned()):
                lock.release()      # it struck after all was done, or before anything was
            print(at, interrupt.where)
            with other as mine:
                assert mine.valid
                assert masters.status("other").token == mine.token
            eventually(lambda: nothing_left(redlock_servers), 3.0)
        assert struck > 50


def test_ctrl_c_for_real(redlock_servers):
    """A process that waits for a held lock, and gets SIGINT: one traceback, no key, no hang."""
    code = textwrap.dedent(f"""
        from redlock import Masters
        masters = Masters({redlock_servers.urls!r}, restart_guard=False)
        print("up", flush=True)
        masters.lock("job", ttl=10).acquire()
        """)
    for i in range(3):
        redlock_servers.client(i).set("redlock:job", "somebody", px=60_000)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    eventually(lambda: lock_keys(redlock_servers)[3:] == [set(), set()])
