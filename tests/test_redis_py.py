"""redis-py: the range that is allowed, and the one error where its inside is not what `_connect.py` relies on."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import redis
from redis.connection import Connection

from redlock import ConfigurationError, Masters, QuorumUnreachable, _connect
from redlock._system import installed

ROOT = Path(__file__).parent.parent
URL = "redis://127.0.0.1:6379"
SAYS = rf"redis-py {re.escape(redis.__version__)} does not fit this version of redlock-quorum \(.*\): install {re.escape(installed.FITS)}$"


def test_the_range_ends_below_the_next_major_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [given] = [one for one in project["dependencies"] if one.startswith("redis")]
    assert given.replace("[hiredis]", "") == installed.FITS
    least, end = map(int, re.fullmatch(r"redis>=(\d+)\.\d+,<(\d+)", installed.FITS).groups())  # type: ignore[union-attr]
    assert least < end


@pytest.mark.parametrize("name", ["_sock", "read_response", "send_command"])
def test_what_a_connection_has_not_is_told_where_the_masters_are_given(monkeypatch, name):
    class Another(Connection):
        def __getattribute__(self, asked):
            if asked == name:
                raise AttributeError(f"no {asked}")
            return super().__getattribute__(asked)

    monkeypatch.setattr(_connect, "Connection", Another)
    with pytest.raises(ConfigurationError, match=SAYS) as caught:
        Masters([URL])
    assert name in str(caught.value)


def test_what_cannot_be_imported_is_told_in_the_same_words():
    code = "import redis.connection as c; del c.DefaultParser; from redlock import Masters; Masters(['redis://h'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(f"ImportError: {SAYS}", last), done.stderr


def test_its_version_is_not_looked_up_for_each_connection(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda _: pytest.fail("it was looked up"))
    assert _connect.endpoint(URL).address in URL


def test_what_shows_only_in_a_handshake_is_the_vote_and_ends_the_wait(monkeypatch, redlock_servers):
    """C1: waiting cures nothing."""
    monkeypatch.setattr(Connection, "send_command", lambda self, words: None)
    with Masters(redlock_servers.urls, restart_guard=False) as masters:
        with pytest.raises(QuorumUnreachable) as caught:
            masters.lock("job").acquire()
        assert all(re.match(SAYS, vote.reason) for vote in caught.value.votes if vote.outcome == "error")


def test_a_mistake_of_the_user_is_not_laid_at_its_door(redlock_servers):
    class Broken(redis.UsernamePasswordCredentialProvider):
        def get_credentials(self):
            raise AttributeError("no vault")

    clients = [redis.Redis(port=port, credential_provider=Broken()) for port in redlock_servers.ports]
    with Masters(clients, restart_guard=False) as masters, pytest.raises(QuorumUnreachable, match="no vault") as caught:
        masters.lock("job").acquire(timeout=0)
    assert "does not fit" not in str(caught.value)
