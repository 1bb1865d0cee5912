"""``python -m redlock``: what somebody would ask first who is told of a bug, and no secret."""

from __future__ import annotations

import hashlib
import re
import sys
from importlib.metadata import version

import pytest

import redlock
from redlock import scripts
from tests.servers.process import run


def facts(*arguments, **environment):
    done = run("-m", "redlock", *arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_versions_and_places():
    said = dict(line.split(": ", 1) for line in facts().splitlines())
    assert said["redlock-quorum"].strip().startswith(f"{redlock.__version__}, ")
    assert said["Python"].strip().endswith(sys.executable)
    for name in ("redis", "hiredis", "tenacity"):
        assert said[name].strip() == version(name)
    assert {"system", "redlock-run", "redlock-check", "server", "celery"} <= said.keys()


def test_no_address_and_no_password():
    said = facts(REDLOCK_MASTERS="redis://:secret@10.11.12.1,redis://somebody:secret@10.11.12.2")
    assert "2 addresses" in said
    assert "secret" not in said
    assert "10.11.12" not in said


@pytest.mark.parametrize(("script", "says"), [
    ("#!/bin/sh\necho 'Redis server v=99.9'\n", "Redis server v=99.9"),
    ("#!/bin/sh\nexit 3\n", "ended with status 3"),
    ("#!/no/such/shell\n", "cannot be started"),
])  # fmt: skip
def test_servers_that_are_found(tmp_path, script, says):
    server = tmp_path / "redis-server"
    server.write_text(script)
    server.chmod(0o755)
    (line,) = (line for line in facts(PATH=str(tmp_path)).splitlines() if str(server) in line)
    assert says in line


def test_the_scripts_are_printed_as_masters_get_them():
    """Each behind its name and the SHA-1 of its text, with its contract on top."""
    printed = re.findall(r"^==> (\w+) (\w{40})\n(.*?)\n(?===> |\Z)", facts("--scripts"), re.MULTILINE | re.DOTALL)
    assert [name for name, *_ in printed] == [script.name for script in scripts.ALL]
    for name, sha, text in printed:
        assert hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() == sha
        contract, _, _ = text.partition("\n\n")
        assert {line[:2] for line in contract.splitlines()} == {"--"}
        assert "-- returns " in contract, name


def test_it_takes_no_arguments():
    done = run("-m", "redlock", "10.0.0.1")
    assert done.returncode == 2
    assert "unrecognized arguments" in done.stderr
