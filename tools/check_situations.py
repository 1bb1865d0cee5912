"""What `redlock-check` says in real situations: real servers, put into each of them, and its whole output.

    python -m tools.check_situations                 shows all of them
    python -m tools.check_situations replica tls     shows these
    python -m tools.check_situations --markdown      what docs/redlock-check-situations.md is made of

Takes half a minute.  Nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from redlock.testing import LocalMasters, clock_available

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Urls: TypeAlias = list[str]


@dataclass(frozen=True)
class Situation:
    """One state of the world, and what is to be found in it."""

    name: str
    text: str
    prepare: Callable[[LocalMasters], contextlib.AbstractContextManager[Urls]]
    exit_code: int
    codes: frozenset[str] = frozenset()  # of the findings
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    clock: bool = False


SITUATIONS: dict[str, Situation] = {}


def situation(
    text: str, exit_code: int, *codes: str, options: tuple[str, ...] = (), clock: bool = False
) -> Callable[[Callable[[LocalMasters], Iterator[Urls]]], None]:
    """Put a generator, which yields the masters to be checked, on the list."""

    def enter(prepare: Callable[[LocalMasters], Iterator[Urls]]) -> None:
        name = prepare.__name__.strip("_").replace("_", "-")
        manager = contextlib.contextmanager(prepare)
        SITUATIONS[name] = Situation(name, text, manager, exit_code, frozenset(codes), options, clock=clock)

    return enter


@situation("Five healthy masters", 0)
def _healthy(servers: LocalMasters) -> Iterator[Urls]:
    yield servers.urls


@situation("Two are dead: locks work, and nothing more may happen", 1, "unreachable", "too-few")
def _two_dead(servers: LocalMasters) -> Iterator[Urls]:
    servers.kill(3)
    servers.kill(4)
    yield servers.urls


@situation("One hangs: it takes connections and answers nothing", 1, "unreachable", options=("--timeout", "1"))
def _frozen(servers: LocalMasters) -> Iterator[Urls]:
    servers.pause(4)
    yield servers.urls


@situation("One is a replica of another", 1, "not-master", "failover")
def _replica(servers: LocalMasters) -> Iterator[Urls]:
    servers.client(4).replicaof("127.0.0.1", servers.ports[0])
    while servers.client(4).info("replication")["master_link_status"] != "up":
        pass
    yield servers.urls


@situation("The same server twice, under two names", 1, "duplicate")
def _same_server_twice(servers: LocalMasters) -> Iterator[Urls]:
    yield [*servers.urls[:4], f"redis://localhost:{servers.ports[0]}"]


@situation("One may evict keys, and a lock is a key", 1, "evicting")
def _evicting(servers: LocalMasters) -> Iterator[Urls]:
    servers.client(4).config_set("maxmemory", "100mb")
    servers.client(4).config_set("maxmemory-policy", "allkeys-lru")
    yield servers.urls


@situation("One is full", 1, "low-memory")
def _full(servers: LocalMasters) -> Iterator[Urls]:
    servers.client(4).config_set("maxmemory", "1")
    yield servers.urls


@situation("One wants replicas that it does not have", 1, "read-only")
def _no_replicas(servers: LocalMasters) -> Iterator[Urls]:
    servers.client(4).config_set("min-replicas-to-write", 1)
    yield servers.urls


@situation("One does not permit what is needed", 1, "no-permission")
def _no_permission(servers: LocalMasters) -> Iterator[Urls]:
    rules = ("on", ">a-password", "-@all", "+get", "+set", "+info", "+time", "+config|get", "~other:*")
    servers.client(4).execute_command("ACL", "SETUSER", "locker", *rules)
    yield [*servers.urls[:4], f"redis://locker:a-password@127.0.0.1:{servers.ports[4]}"]


@situation("The password for one is wrong", 1, "auth")
def _wrong_password(servers: LocalMasters) -> Iterator[Urls]:
    servers.client(4).execute_command("ACL", "SETUSER", "locker", "on", ">the-right-one", "+@all", "~*")
    yield [*servers.urls[:4], f"redis://locker:a-wrong-one@127.0.0.1:{servers.ports[4]}"]


@situation("One speaks TLS, with a certificate of our own CA", 0)
def _tls(servers: LocalMasters) -> Iterator[Urls]:
    with _tls_server() as (port, authority):
        yield [*servers.urls[:4], f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority}"]


@situation("The same, and nobody has said which CA that is", 1, "tls")
def _tls_unknown_ca(servers: LocalMasters) -> Iterator[Urls]:
    with _tls_server() as (port, _):
        yield [*servers.urls[:4], f"rediss://127.0.0.1:{port}"]


@situation("At one address a web server answers", 1, "not-redis")
def _http(servers: LocalMasters) -> Iterator[Urls]:
    with _web_server() as port:
        yield [*servers.urls[:4], f"redis://127.0.0.1:{port}"]


@situation("The clock of one is slewed by 8.3 %, which is what chrony does by default", 1, "clock-rate", clock=True)
def _clock_slewed(servers: LocalMasters) -> Iterator[Urls]:
    servers.slew(4, 1.0833)
    yield servers.urls


@situation(
    "All were restarted just now, and clients are told to trust new masters",
    1,
    "no-persistence",
    options=("--no-restart-guard",),
)
def _without_the_guard(servers: LocalMasters) -> Iterator[Urls]:  # noqa: ARG001
    with LocalMasters(3) as fresh:
        yield fresh.urls


@situation(
    "There are two masters only, and --strict makes 2 of a warning", 2, "even-size", "too-few", options=("--strict",)
)
def _strict(servers: LocalMasters) -> Iterator[Urls]:
    yield servers.urls[:2]


@contextlib.contextmanager
def _tls_server() -> Iterator[tuple[int, str]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "ca.pem"), Path(folder, "key.pem")
        subprocess.run(
            [  # noqa: S607
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-keyout",
                str(key),
                "-out",
                str(certificate),
            ],
            check=True,
            capture_output=True,
        )
        config = {
            "tls-port": str(port),
            "tls-auth-clients": "no",
            "tls-cert-file": str(certificate),
            "tls-key-file": str(key),
            "tls-ca-cert-file": str(certificate),
        }
        with LocalMasters(1, persistence="always", config=config):
            yield port, str(certificate)


@contextlib.contextmanager
def _web_server() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    client, _ = listener.accept()
                    with client:
                        client.recv(4096)
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            thread.join()


def check(urls: Urls, *options: str) -> tuple[int, str]:
    """Run the command: exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "redlock._cli.check", *options],
        env={**os.environ, "REDLOCK_MASTERS": ",".join(urls), "COLUMNS": "110"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def servers_for(*, clock: bool) -> Iterator[LocalMasters]:
    """Five that forget nothing, so they vote from the start."""
    with LocalMasters(5, persistence="always", clock=clock) as servers:
        yield servers


FIGURES = re.compile(r"[-+]?\d[\d.]*( ?(ms|s|min|h|K|M|G|B)\b)?")  # with their units: one of them may be up for longer


def abridged(output: str) -> str:
    """Without masters that are like the one before: all but their figures."""
    lines: list[str] = []
    last = ""
    for line in output.splitlines():
        alike = FIGURES.sub("", line).replace(" ", "") if re.match(r"  \S+ +(yes|no|in \d+ s) ", line) else ""
        if not alike or alike != last:
            lines.append(line)
        elif lines[-1] != "  …":
            lines.append("  …")
        last = alike
    return "".join(f"{line}\n" for line in lines)


def findings(output: str) -> str:
    """Of an output that has some: the first line, without figures for monitoring, and the findings."""
    paragraphs = output.rstrip("\n").split("\n\n")
    found = [one for one in paragraphs if re.search(r"\[[a-z-]+\]$", one, re.MULTILINE)]
    return "\n\n".join([paragraphs[0].partition(" | ")[0], *found]) + "\n" if found else abridged(output)


def show(one: Situation, servers: LocalMasters, *, markdown: bool) -> None:
    """Print one situation."""
    servers.reset()
    with one.prepare(servers) as urls:
        code, output = check(urls, *one.options)
    command = " ".join(("redlock-check", *one.options))
    if markdown:
        print(
            f"## {one.text}\n\n<!-- {one.name} -->\n\n```text\n$ {command}\n{findings(output)}$ echo $?\n{code}\n```\n"
        )
    else:
        print(f"=== {one.text}\n\n$ {command}\n{output}(exit code {code})\n")


def main(arguments: list[str]) -> None:
    if {"-h", "--help"} & set(arguments):
        sys.exit(f"{__doc__}\nSituations: {', '.join(SITUATIONS)}")
    markdown = "--markdown" in arguments
    wanted = [name for name in arguments if name != "--markdown"] or list(SITUATIONS)
    unknown = [name for name in wanted if name not in SITUATIONS]
    if unknown:
        sys.exit(f"no such situation: {', '.join(unknown)}; there are {', '.join(SITUATIONS)}")
    if markdown:
        print(INTRODUCTION)
    chosen = [SITUATIONS[name] for name in wanted]
    for clock in (False, True):
        some = [one for one in chosen if one.clock is clock]
        if some and clock and not clock_available():
            sys.exit("libfaketime is needed to move a clock")
        if some:
            with servers_for(clock=clock) as servers:
                for one in some:
                    show(one, servers, markdown=markdown)


INTRODUCTION = """\
# redlock-check in real situations

Made by `python -m tools.check_situations --markdown` on real servers, all on one machine. A test repeats every one of
them; figures may differ. Shown are the first line and the findings; where there are none, all. What each code means:
[redlock-check](redlock-check.md). Whole outputs, and more situations: [the runbook](howto/runbook.md).
"""

if __name__ == "__main__":
    main(sys.argv[1:])
