"""One master beside an application: a server with this very configuration, and what reads the unit."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from contextlib import contextmanager
from functools import partial

import pytest
import redis

from tests.compose.programs import COMPOSE, run
from tests.servers.needs import missing
from tests.servers.one import free_port, with_functions

ONE = COMPOSE / "one-master"
PASSWORD = secrets.token_hex(8)


@pytest.fixture
def users(tmp_path):
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    done = run(ONE / "users.sh", tmp_path / "password")
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout
    (tmp_path / "users.acl").write_text(done.stdout)
    return tmp_path / "users.acl"


@pytest.fixture
def server(users, tmp_path):
    """Only its port and its folders are other ones."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        missing("redis-server")
    with _started(program, users, tmp_path) as (port, health):
        yield port, health


@contextmanager
def _started(program, users, tmp_path):
    port = free_port()
    started = subprocess.Popen(
        [program, ONE / "redlock-master.conf", "--dir", tmp_path, "--aclfile", users, "--port", str(port)],
        stdout=subprocess.DEVNULL,
    )
    try:
        health = redis.Redis.from_url(f"redis://health:none@127.0.0.1:{port}")
        until = time.monotonic() + 20
        while True:
            try:
                assert health.ping()
                break
            except redis.ConnectionError:
                assert time.monotonic() < until
                time.sleep(0.05)
        yield port, health
        health.close()
    finally:
        started.terminate()
        started.wait()


def test_it_is_a_right_master_for_who_has_the_password_and_for_nobody_else(server):
    port, health = server
    url = f"redis://locks@127.0.0.1:{port}"
    done = run("redlock-check", url, REDLOCK_PASSWORD=PASSWORD)
    # One master may not fail: there is nothing else to be said of it.
    assert (done.returncode, done.stdout.count("[")) == (1, 1), done.stdout
    assert "[too-few]" in done.stdout
    assert "aof always   noeviction" in done.stdout
    locked = run("redlock-run", "nightly", "--", "echo", "done", REDLOCK_MASTERS=url, REDLOCK_PASSWORD=PASSWORD)
    assert (locked.returncode, locked.stdout) == (0, "done\n"), locked.stderr
    assert "[auth]" in run("redlock-check", url, REDLOCK_PASSWORD=PASSWORD[::-1]).stdout
    for forbidden in (health.dbsize, redis.Redis(port=port).ping, health.flushall):
        with pytest.raises((redis.AuthenticationError, redis.exceptions.NoPermissionError)):
            forbidden()


def test_a_user_who_may_run_no_script_where_the_start_loads_the_functions(users, tmp_path):
    """R44."""
    (tmp_path / "loader").write_text(f"{PASSWORD[::-1]}\n")
    users.write_text(run(ONE / "users.sh", tmp_path / "password", tmp_path / "loader").stdout)
    assert PASSWORD[::-1] not in users.read_text()
    with _started(with_functions()[0], users, tmp_path) as (port, _):
        url, environment = f"redis://locks@127.0.0.1:{port}", {"REDLOCK_PASSWORD": PASSWORD}
        load = partial(run, ONE / "load.sh", tmp_path, "-p", str(port))
        assert load().returncode == 0, "there is nothing to load"
        assert "[functions]" in run("redlock-check", url, **environment).stdout
        (tmp_path / "functions.lua").write_text(run("redlock-check", "--functions").stdout)
        for _ in range(2):
            assert load().returncode == 0
            assert run("redlock-check", url, **environment).stdout.count("[") == 1, "too-few"
        assert run("redlock-run", "nightly", "--", "true", REDLOCK_MASTERS=url, **environment).returncode == 0


def test_a_password_that_is_missing(tmp_path):
    (tmp_path / "password").touch()
    done = run(ONE / "users.sh", tmp_path / "password")
    assert (done.returncode, done.stdout) == (64, "")
    assert "openssl rand -hex 32" in done.stderr


def test_the_unit_is_one_for_systemd(tmp_path):
    if shutil.which("systemd-analyze") is None:
        missing("systemd-analyze")
    text = (ONE / "redlock-master.service").read_text()
    for there in ("/usr/bin/redis-server", "/etc/redlock/load.sh"):  # not every machine has them there
        text = text.replace(there, shutil.which("true") or "")

    def said(unit):
        file = tmp_path / "redlock-master.service"
        file.write_text(unit)
        done = run("systemd-analyze", "verify", "--man=no", file)
        return [line for line in (done.stdout + done.stderr).splitlines() if "redlock-master" in line]

    assert said(text) == []
    assert said(text.replace("MemoryMax", "MemoryMost")) != []
