"""Looking at servers behind the library's back."""

import contextlib
import faulthandler
import subprocess
import threading
import time
from pathlib import Path

import redis

from redlock import QuorumUnreachable


def each(servers, command, *arguments, masters=None, **options):
    """Call ``command`` of a client of each master, or of the first so many."""
    for number in range(len(servers) if masters is None else masters):
        getattr(servers.client(number), command)(*arguments, **options)


def _for_masters(method):
    def do(servers, masters=None):
        for number in range(len(servers) if masters is None else masters):
            getattr(servers, method)(number)

    return do


# All masters, or the first so many.
pause, resume, kill, restart = map(_for_masters, ("pause", "resume", "kill", "restart"))


def lock_keys(servers):
    """The lock keys on every master that answers; fences and announcements are meant to stay."""
    return [
        set()
        if keys is None
        else {
            key
            for key in keys
            if not key.endswith((":fence", ":replid")) and not key.startswith(("redlock-max-ttl:", "redlock-fleet:"))
        }
        for keys in servers.keys()
    ]


def steal(servers, key="redlock:job"):
    """Somebody else has it for a while.  What is deleted instead, an extension under way may give back at once (R14)."""
    each(servers, "set", key, "somebody", px=1500)


def eventually(condition, seconds=20.0):
    """Wait until ``condition()`` is true: for what happens in the background, soon but not at once.

    No quorum or no answer in time is one more "not yet", and so is an assertion of the condition: it may say more.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            value = condition()
            why = repr(value)
        except (QuorumUnreachable, redis.TimeoutError, AssertionError) as error:
            value, why = None, str(error)
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {condition}, last: {why}")
        time.sleep(0.005)


def in_line(servers):
    """So many tickets for the name ``job`` each master has (R42)."""
    return [servers.client(i).zcount("{redlock:job}:tickets", "(0", "+inf") for i in range(len(servers))]


def no_thread_besides(before):
    """One of the tests before may have been ending ``before``."""
    more = set(threading.enumerate()) - before
    assert not more, more
    return True


def nothing_left(servers):
    return not any(lock_keys(servers))


def all_up(masters):
    """Every master is connected and votes: a lock taken now is on all of them."""
    return all(vote.outcome in ("free", "held") for vote in masters.status("whatever").votes)


def take(lock, **options):
    """Acquire, and insist."""
    lease = lock.acquire(**options)
    assert lease is not None
    return lease


def script_calls(servers):
    """How many scripts each master was asked to run, but for announcements (R21, R34): these come when it is time.

    Each of those is three scripts, and one reads a hash, once; no other script does.
    """
    counted = {"cmdstat_evalsha": 1, "cmdstat_eval": 1, "cmdstat_hgetall": -3}
    stats = [servers.client(i).info("commandstats") for i in range(5)]
    return [sum(one[name]["calls"] * times for name, times in counted.items() if name in one) for one in stats]


def logged(caplog):
    """What the library has logged; asyncio may have complained of a slow machine."""
    return [record for record in caplog.records if record.name.startswith("redlock")]


def alive(pid):
    """A process that nobody has waited for yet does nothing any more."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    if Path("/proc/self/stat").exists():
        return False
    ps = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return ps.stdout.strip()[:1] not in ("", "Z")


def child_of(pid):
    """The only one."""
    listed = subprocess.run(["ps", "-A", "-o", "ppid=,pid="], capture_output=True, text=True, check=True).stdout
    (child,) = (int(child) for parent, child in map(str.split, listed.splitlines()) if int(parent) == pid)
    return child


class Doing:
    """A thread that does ``work``, and what became of that."""

    def __init__(self, work):
        self.outcome = None
        self._work = work
        self._thread = threading.Thread(target=self._do, daemon=True)
        self._thread.start()

    def _do(self):
        try:
            self.outcome = self._work()
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            self.outcome = error

    @property
    def over(self):
        return not self._thread.is_alive()

    def end(self, seconds=30.0):
        """What it returned or raised."""
        self._thread.join(seconds)
        if not self.over:
            faulthandler.dump_traceback(all_threads=True)
        assert self.over, "it goes on, or stands still"
        return self.outcome


def elsewhere(work):
    """What ``work()`` returns or raises in another thread, for which another task stands on a loop."""
    return Doing(work).end(600.0)


def at_once(works):
    """Call each of ``works`` in a thread of its own, and wait until all have returned."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
