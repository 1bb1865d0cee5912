"""One master beside an application: a server with this very configuration, and what reads the unit."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time

import pytest
import redis

from tests.compose.programs import COMPOSE, run
from tests.servers.needs import missing
from tests.servers.one import free_port

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


def test_a_password_that_is_missing(tmp_path):
    (tmp_path / "password").touch()
    done = run(ONE / "users.sh", tmp_path / "password")
    assert (done.returncode, done.stdout) == (64, "")
    assert "openssl rand -hex 32" in done.stderr


def test_the_unit_is_one_for_systemd(tmp_path):
    if shutil.which("systemd-analyze") is None:
        missing("systemd-analyze")
    text = (ONE / "redlock-master.service").read_text()
    text = text.replace("/usr/bin/redis-server", shutil.which("true") or "")  # not every machine has a server there

    def said(unit):
        file = tmp_path / "redlock-master.service"
        file.write_text(unit)
        done = run("systemd-analyze", "verify", "--man=no", file)
        return [line for line in (done.stdout + done.stderr).splitlines() if "redlock-master" in line]

    assert said(text) == []
    assert said(text.replace("MemoryMax", "MemoryMost")) != []
