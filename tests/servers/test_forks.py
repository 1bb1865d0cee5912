"""Forks, also those that Python is not told of: uWSGI, an embedded interpreter, a library in C.  No hook runs there."""

import json
import signal

import pytest

from tests.servers.look import eventually, nothing_left
from tests.servers.process import run

# A program that uses masters, and forks in C.  A `Child` calls ``work`` once `go` is closed, tells what that returns, and
# goes on until `end`.  A fork that the interpreter is not told of may find its own lock in use, by a thread that the child
# does not have.  Such a child hangs before it comes to us: it is killed, tells None, and another one is asked.
FORKING = """
import asyncio, atexit, contextlib, ctypes, gc, json, logging, math, os, signal, sys, time, warnings
from redlock import AsyncMasters, LockLost, Masters, NotHeld, RedlockError
fork, world, urls = ctypes.PyDLL(None).fork, sys.argv[1], sys.argv[2:]
signal.alarm(100)
warnings.simplefilter("ignore")  # that this process has threads
logging.getLogger("redlock").addHandler(logging.NullHandler())  # a child has no connections yet, and may say so

class Child:
    def __init__(self, work):
        (go, self.go), (self.said, say), (end, self.end) = os.pipe(), os.pipe(), os.pipe()
        time.sleep(0.02)  # so that other threads may go to sleep
        self.pid = fork()
        if self.pid == 0:
            signal.alarm(5)
            for fd in (self.go, self.said, self.end):
                os.close(fd)
            os.read(go, 1)
            try:
                told = work() or "nothing"
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            os.write(say, json.dumps(told).encode())
            os.read(end, 1)
            os._exit(0)
        for fd in (go, say, end):
            os.close(fd)
    def __enter__(self):
        os.close(self.go)
        return self
    def tells(self):
        return json.loads(os.read(self.said, 65536) or "null")
    def __exit__(self, *_):
        os.close(self.end); os.close(self.said); os.waitpid(self.pid, 0)

def ask(work):
    told = None
    for _ in range(5):
        if told is None:
            with Child(work) as child:
                told = child.tells()
    return told

if world == "threads":
    masters = Masters(urls, restart_guard=False, node_timeout=2.0)
    def acquire(name, timeout=0):
        return masters.lock(name, ttl=30).acquire(timeout=timeout)
    def pair(name):
        with masters.lock(name, ttl=30) as lease:
            return lease.owner
    def play(main):
        main()
else:
    masters = AsyncMasters(urls, restart_guard=False, node_timeout=2.0)
    loop = asyncio.new_event_loop()
    mine = os.getpid()
    def play(main):
        main()
        if os.getpid() == mine:
            loop.run_until_complete(masters.close())
    kept = []
    def on_loop(coroutine):
        return (loop.run_until_complete if os.getpid() == mine else asyncio.run)(coroutine)
    def acquire(name, timeout=0):
        kept.append(masters.lock(name, ttl=30, bound=False))
        return on_loop(kept[-1].acquire(timeout=timeout))
    async def a_pair(name):
        async with masters.lock(name, ttl=30) as lease:
            return lease.owner
    def pair(name):
        return on_loop(a_pair(name))

def call(told):
    return told if world == "threads" else on_loop(told)
def connect():
    pair("imported")
    while not all(vote.outcome == "free" for vote in call(masters.status("imported")).votes):
        pass  # one that is late says more later, and is given a key later (R37)
"""


def forking(world, program, urls):
    """What the program prints, line by line.  ``world``: "threads" or "asyncio"."""
    done = run("-c", FORKING + program, world, *urls)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.splitlines()


@pytest.fixture(params=["threads", "asyncio"])
def world_name(request):
    return request.param


ALL_AT_ONCE = """
def main():
    pair("imported")
    held = acquire("held", 10)
    def work(name):
        lease = acquire(name)
        return held.valid, lease and lease.token
    for turn in range(40):
        with Child(lambda: work(f"job-{turn}")) as one, Child(lambda: work(f"job-{turn}")) as other:
            pair(f"parent-{turn}")
            print(json.dumps([one.tells(), other.tells(), held.valid]))
play(main)
"""


@pytest.mark.timeout(150)
def test_two_children_that_were_forked_in_c_never_both_have_a_lease(redlock_servers, world_name):
    """P1: they do not read each other's answers, nor those of their parent, whose lock and lease they leave alone."""
    lines = forking(world_name, ALL_AT_ONCE, redlock_servers.urls)
    assert len(lines) == 40
    both = 0
    for line in lines:
        one, other, parents = json.loads(line)
        assert parents
        if one is None or other is None:
            continue
        both += 1
        assert type(one) is type(other) is list, (one, other)
        assert (one[0], other[0]) == (False, False)  # the parent's lease is valid in the parent alone
        assert None in (one[1], other[1]), (one, other)
    assert both > 20


NOTHING_OF_ITS_PARENTS = """
fork = os.fork if how == "os.fork" else fork
def is_open(number):
    with contextlib.suppress(OSError):
        os.fstat(number)
        return True
    return False
def main():
    connect()
    (driver,) = masters._runtime.drivers.values()
    numbers = [connection.fd for connection in driver._connections.all]
    lock = masters.lock("held", ttl=30, bound=False)
    lease = call(lock.acquire())
    def refused(method):
        try:
            call(method())
        except NotHeld:
            return True
    def work():
        global handed_over
        if how == "os.fork" and any(map(is_open, numbers)):  # Python tells of that one, and the copies are closed
            return "open"
        first = [lease.valid, lease.lost, lease.remaining(), lock.owned()]
        handed_over = masters.resume("held", ttl=30, token=lease.token, fence=lease.fence)
        return [
            *first, refused(lock.release), refused(lock.extend), acquire("held"),
            pair("its own").endswith(f"/{os.getpid()}"), call(handed_over.acquire()).valid,
        ]
    print(json.dumps(ask(work)))
    call(lock.extend())
    call(lock.release())
    for turn in range(20):
        pair("the parent goes on")
play(main)
"""


@pytest.mark.parametrize("how", ["os.fork", "in C"])
def test_a_child_has_nothing_of_its_parents(redlock_servers, world_name, how):
    """And what it takes itself is its own, by name as well (R27); a lease that is handed over by its token, too."""
    [told] = forking(world_name, f"how = {how!r}\n" + NOTHING_OF_ITS_PARENTS, redlock_servers.urls)
    assert json.loads(told) == [False, False, 0.0, False, True, True, None, True, True]
    eventually(lambda: nothing_left(redlock_servers))


SAYS_NOTHING = """
def commands():
    return [int(client.info("stats")["total_commands_processed"]) for client in clients]
def work():
    global masters, lock
    if how == "close":
        close = masters.close()
        close and asyncio.run(close)
    elif how == "drop":
        lock = masters = None
        gc.collect()
    elif how == "exit":
        atexit._run_exitfuncs()
def main():
    global lock, clients, how
    import redis
    clients = [redis.Redis.from_url(url) for url in urls]
    connect()
    for driver in masters._runtime.drivers.values():  # the parent itself is silent from now on
        driver.background._announcer._due = driver.background._announcer._next_reading = math.inf
    lock = masters.lock("held", ttl=60, bound=False)
    call(lock.acquire())
    before = commands()
    for how in ("close", "drop", "exit"):
        print(ask(work))
    print([now - then for now, then in zip(commands(), before)])
    pair("the parent goes on")
    call(lock.release())
play(main)
"""


def test_a_child_that_was_forked_in_c_says_nothing_on_the_sockets_of_its_parent(redlock_servers, world_name):
    """Whether it closes its masters, drops them, or ends: nothing arrives, and the connections stay whole."""
    *told, arrived = forking(world_name, SAYS_NOTHING, redlock_servers.urls)
    assert told == ["nothing"] * 3
    assert arrived == "[1, 1, 1, 1, 1]"  # this look
    eventually(lambda: nothing_left(redlock_servers))


# While an acquire waits, a signal handler forks in C.  The child is inside of the acquire of its parent, which it does not
# end: it goes on, or unwinds.  The parent waits in its handler until the child has gone, and then gets the lock: the
# answers have come meanwhile, or the other holder releases it.
IN_AN_ACQUIRE = """
def strike(*_):
    pid = fork()
    if pid:
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return kept.release() if awaits == "a release" else None
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(5)
    if how == "unwinds":
        sys.exit()
def main():
    global kept, masters
    masters = type(masters)(urls, restart_guard=False, node_timeout=3.0)
    pair("imported")
    parent, blocker = os.getpid(), Masters(urls, restart_guard=False)
    kept = blocker.lock("job", ttl=30, bound=False)
    kept.acquire()
    if awaits == "answers":
        import redis
        kept.release()
        for url in urls:
            redis.Redis.from_url(url).execute_command("CLIENT", "PAUSE", "1000", "ALL")
    lock = masters.lock("job", ttl=30, bound=False)
    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        lease = lock.acquire(timeout=30 if awaits == "a release" else 0)
        if world == "asyncio":
            task = loop.create_task(lease)
            lease = loop.run_until_complete(task)
    except BaseException as error:
        if os.getpid() == parent:
            raise
        if world == "asyncio" and how == "unwinds":  # as asyncio.run does
            task.cancel()
            with contextlib.suppress(BaseException):
                loop.run_until_complete(task)
        os._exit(7 if isinstance(error, SystemExit if how == "unwinds" else RedlockError) else 8)
    if os.getpid() != parent:
        os._exit(9)
    signal.alarm(60)
    again = masters.lock("job", ttl=30, bound=False).acquire(timeout=0)
    print(lease.valid, again if world == "threads" else on_loop(again))
    for turn in range(3):
        pair("the parent goes on")
    free = lock.release()
    free and on_loop(free)
    blocker.close()
play(main)
"""


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("how", "awaits"), [("goes on", "answers"), ("unwinds", "a release")])
def test_a_signal_handler_forks_in_c_while_an_acquire_waits(redlock_servers, world_name, how, awaits):
    """P1, P7: the child asks nothing more and takes nothing back over the connections of its parent, which gets the lock."""
    code = ""
    for _ in range(5):
        code, told = forking(world_name, f"how, awaits = {how!r}, {awaits!r}\n" + IN_AN_ACQUIRE, redlock_servers.urls)
        assert told == "True None"
        if code != str(-signal.SIGALRM):
            break
    assert code == "7"
    eventually(lambda: nothing_left(redlock_servers))


# The body of a leader forks, and the child is a candidate of its own until a SIGTERM.
A_CHILD_LEADS = """
def child(out):
    election = masters.leader("child", ttl=30)
    def stopped(term):
        os.write(out, b"stopped " if term.valid else b"lost ")
    if world == "threads":
        def lead(term):
            os.write(out, b"leads ")
            term.wait_stop(20)
        election.run(lead, stopped)
    else:
        async def lead(term):
            os.write(out, b"leads ")
            await term.wait_stop(20)
        asyncio.run(election.run(lead, stopped))
    os.write(out, b"ended ")
def forks(term):
    told, tell = os.pipe()
    pid = fork()
    if pid == 0:
        signal.alarm(10)
        code = 1
        try:
            child(tell)
            code = 0
        finally:
            os._exit(code)
    os.close(tell)
    heard = os.read(told, 100)
    os.kill(pid, signal.SIGTERM)
    while more := os.read(told, 100):
        heard += more
    print(heard.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), term.valid)
    election.stop()
async def forks_in_a_task(term):
    forks(term)
fork = os.fork if how == "os.fork" else fork
election = masters.leader("parent", ttl=30)
if world == "threads":
    election.run(forks)
    print(masters.status("child").token)
    masters.close()
else:
    async def main():
        await election.run(forks_in_a_task)
        print((await masters.status("child")).token)
        await masters.close()
    asyncio.run(main())
"""


@pytest.mark.parametrize(("world", "how"), [("threads", "os.fork"), ("threads", "in C"), ("asyncio", "os.fork")])
def test_a_child_of_a_leader_leads_itself_until_it_is_told_to_end(redlock_servers, world, how):
    """R31: the signal stops the election of the child: it is told of, the lock is given back, and its parent still leads."""
    program = f"how = {how!r}\n" + A_CHILD_LEADS
    told = [""]
    for _ in range(5):
        told = forking(world, program, redlock_servers.urls)
        if str(-signal.SIGALRM) not in told[0]:
            break
    assert told == ["leads stopped ended  0 True", "None"]
    eventually(lambda: nothing_left(redlock_servers))
