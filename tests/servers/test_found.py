"""Faults around the driver that once broke more than they had to: each stays where it happens."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time

import pytest
import redis

from redlock import ConfigurationError, Masters, QuorumUnreachable, RedlockError
from tests.servers.look import all_up, eventually, lock_keys, nothing_left
from tests.servers.proxy import Proxy

SECRET = "s3cr3t"  # noqa: S105


class _Provider(redis.CredentialProvider):
    def get_credentials(self):
        return "user", SECRET


def test_a_setting_that_redis_py_refuses_is_refused_when_it_is_given(world):
    with pytest.raises(ConfigurationError, match=r"settings for 10\.0\.0\.1:6379 are refused"):
        world.Masters(["rediss://10.0.0.1?ssl_cert_reqs=nonsense"])
    both = redis.Redis(host="10.0.0.1", password=SECRET, credential_provider=_Provider())
    with pytest.raises(ConfigurationError, match="are refused") as caught:
        world.Masters([both])
    assert SECRET not in str(caught.value)


def test_tls_settings_of_a_plain_client_are_not_its_business(world, redlock_servers):
    """C17.  In a URL they are refused: who wrote them there thinks that TLS is spoken."""
    first = redis.Redis(port=redlock_servers.ports[0])
    first.connection_pool.connection_kwargs["ssl_cert_reqs"] = "none"
    masters = [first, *redlock_servers.urls[1:]]
    with world.Masters(masters, restart_guard=False) as masters, masters.lock("job", ttl=10) as lease:
        assert lease.valid


@pytest.mark.parametrize(
    ("sent", "says"),
    [(b"%1\r\n*1\r\n:1\r\n:1\r\n", ""), (b"*1000000000\r\n", ": it announces an answer of 1000000000 values")],
)
def test_an_answer_that_no_parser_can_build_breaks_its_connection_and_nothing_else(world, redlock_servers, sent, says):
    """P4: a map whose key is a list; an array for which there is no room."""
    with Proxy(redlock_servers.ports[4]) as proxy:
        with world.Masters([*redlock_servers.urls[:4], proxy.url], restart_guard=False, node_timeout=1.0) as masters:
            eventually(lambda: all_up(masters))
            proxy.replies = "hold"
            redlock_servers.pause(0)
            redlock_servers.pause(1)  # so that the acquire waits for the fifth, and reads it itself

            def junk():
                for client, _ in proxy._pairs:
                    with contextlib.suppress(OSError):
                        client.sendall(sent)

            timer = threading.Timer(0.2, junk)
            timer.start()
            with pytest.raises(QuorumUnreachable, match=f"does not speak the Redis protocol{says}"):
                masters.lock("job", ttl=10).acquire(timeout=0)
            timer.join()
            proxy.replies = "pass"
            redlock_servers.resume(0)
            redlock_servers.resume(1)
            eventually(lambda: all_up(masters))  # the housekeeper has survived it and connects again
            eventually(lambda: nothing_left(redlock_servers))


ECHO = "unknown command 'AUTH', with args beginning with: '{}'"  # as an old Redis does, cut at 128


@pytest.mark.parametrize(
    ("words", "given", "credentials"),
    [
        pytest.param(ECHO, SECRET, {"credential_provider": _Provider()}, id="provider"),
        pytest.param(ECHO, SECRET, {"password": SECRET + "x" * 200}, id="longer-than-what-is-echoed"),
        pytest.param("I dislike '{}'", SECRET + "  spaces", {"password": SECRET + "  spaces"}, id="spaces"),
        pytest.param("I dislike '{}'", SECRET, {"password": SECRET.encode()}, id="bytes"),
    ],
)
def test_a_server_that_echoes_the_password_is_not_quoted(world, words, given, credentials):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        stop = threading.Event()

        def serve():
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    client, _ = listener.accept()
                    with client:
                        client.recv(4096)
                        client.sendall(f"-ERR {words.format(given)}\r\n".encode())

        server = threading.Thread(target=serve)
        server.start()
        try:
            client = redis.Redis(host="127.0.0.1", port=listener.getsockname()[1], **credentials)
            with world.Masters([client], restart_guard=False) as masters:
                with pytest.raises(QuorumUnreachable) as caught:
                    masters.lock("job", ttl=10).acquire(timeout=0)
        finally:
            stop.set()
            server.join()
    assert SECRET not in str(caught.value)


def test_what_is_owed_is_sent_while_an_acquire_goes_on_waiting(world, redlock_servers):
    """R9, R10: the rollback was refused for a moment, and the next attempt is far away."""
    clients = [redlock_servers.client(i) for i in range(3)]
    with world.Masters(redlock_servers.urls[:3], restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        for client in clients[:2]:
            client.set("redlock:job", "somebody", px=60_000)
        connections = world.connections(masters)
        send = connections.send

        def refused_at_first(request, waiter):
            if request.owed_until is not None and connections.send is not send:
                clients[2].config_set("min-replicas-to-write", 1)
                connections.send = send
            return send(request, waiter)

        connections.send = refused_at_first
        time.sleep(0.3)  # whoever keeps the connections dozes
        lock = masters.lock("job", ttl=30, retry=lambda _: 2.5)
        waiting = threading.Thread(target=lambda: lock.acquire(timeout=3))
        waiting.start()
        eventually(lambda: connections.send is send and clients[2].get("redlock:job"))
        clients[2].config_set("min-replicas-to-write", 0)
        began = time.monotonic()
        eventually(lambda: clients[2].get("redlock:job") is None)
        assert time.monotonic() - began < 1.5  # long before the acquire has ended
        waiting.join()
        for client in clients[:2]:
            client.delete("redlock:job")


class Broken(logging.Filter):
    def filter(self, record):
        raise ZeroDivisionError


def test_a_log_handler_that_raises_is_nothing_to_whoever_waits(world, redlock_servers):
    """C1: that the quorum is gone is logged by the one that finds it out, and it goes on waiting."""
    logger, broken = logging.getLogger("redlock"), Broken()
    with world.Masters(redlock_servers.urls, restart_guard=False, node_timeout=0.1) as masters:
        eventually(lambda: all_up(masters))
        logger.addFilter(broken)
        try:
            for i in range(3):
                redlock_servers.pause(i)
            with pytest.raises(QuorumUnreachable):
                masters.lock("job", ttl=10).acquire(timeout=0.3)
            for i in range(3):
                redlock_servers.resume(i)
            assert masters.lock("job", ttl=10).acquire(timeout=5) is not None
        finally:
            logger.removeFilter(broken)


def test_a_log_handler_that_raises_costs_no_master(world, redlock_servers):
    logger = logging.getLogger("redlock")
    broken = Broken()
    with world.forgives(ZeroDivisionError), world.Masters(redlock_servers.urls, restart_guard=False) as masters:
        eventually(lambda: all_up(masters))
        logger.addFilter(broken)
        try:
            redlock_servers.kill(0)
            time.sleep(0.2)
            redlock_servers.restart(0)
            eventually(lambda: all_up(masters))
        finally:
            logger.removeFilter(broken)


def test_a_thread_that_cannot_be_started_is_tried_again(redlock_servers, monkeypatch):
    start = threading.Thread.start
    left = [1]

    def once_not(thread):
        if "redlock" in thread.name and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once_not)
    with Masters(redlock_servers.urls, restart_guard=False) as masters:
        lock = masters.lock("job", ttl=10)
        with pytest.raises(RedlockError, match="can't start new thread"):
            lock.acquire(timeout=0)
        left[0] = 1
        with contextlib.suppress(RedlockError):
            lock.acquire(timeout=0)
            lock.release()
        with lock as lease:
            assert lease.valid


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_closes_its_copies_of_the_sockets(redlock_servers, redlock_masters):
    """Its parent's connections end when the parent ends them, whether the child uses a lock or not."""
    eventually(lambda: all_up(redlock_masters))
    assert redlock_masters._driver is not None
    numbers = [connection.fd for connection in redlock_masters._driver._connections.all]
    pid = os.fork()
    if pid == 0:
        still_open = 0
        for number in numbers:
            with contextlib.suppress(OSError):
                os.fstat(number)
                still_open += 1
        os._exit(still_open)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    with redlock_masters.lock("job", ttl=10):
        eventually(lambda: sum(bool(keys) for keys in lock_keys(redlock_servers)) >= 3)


class _SealedError(Exception):
    def __str__(self) -> str:
        return str(self.args[1])  # its author's mistake: there is none


class _SealedAtFirst(redis.CredentialProvider):
    def __init__(self) -> None:
        self.asked = 0

    def get_credentials(self):
        self.asked += 1
        if self.asked == 1:
            raise _SealedError("the vault is sealed")
        return "default", ""


def test_an_exception_that_cannot_be_shown_ends_one_attempt_to_connect_and_no_more(world, redlock_servers):
    """Its name has to do; the thread that connects goes on to say that it failed."""
    provider = _SealedAtFirst()
    client = redis.Redis(host="127.0.0.1", port=redlock_servers.ports[0], credential_provider=provider)
    with world.Masters([client], restart_guard=False) as masters:
        with pytest.raises(QuorumUnreachable, match="error: _SealedError"):
            masters.lock("job", ttl=10).acquire(timeout=0)
        assert masters.lock("job", ttl=10).acquire(timeout=5) is not None
    assert provider.asked == 2
