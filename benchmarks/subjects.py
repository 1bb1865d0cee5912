"""The subjects: this library, the limits, what people write themselves, and the other libraries."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from benchmarks import peers
from redlock import _connect
from redlock._core import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind: TypeAlias = Literal["ours", "limit", "home-made", "peer"]

_TIME = "9" * 16  # where the loop in C writes the time


@dataclass(frozen=True, slots=True)
class Subject:
    title: str
    kind: Kind
    command: Callable[[list[str]], list[str]]  # from the words that all get: the masters, the TTL, a name
    tasks: bool = False  # one thread with an event loop, which is compared with the limit of that
    quorum: bool = True


def _module(name: str, *options: str) -> Callable[[list[str]], list[str]]:
    return lambda words: [sys.executable, "-P", "-m", f"benchmarks.workers.{name}", *words, *options]


def _peer(name: str) -> Callable[[list[str]], list[str]]:
    return lambda words: [str(peers.environment()), "-P", "-m", f"benchmarks.workers.peer_{name}", *words]


def _node(words: list[str]) -> list[str]:
    program, home = peers.node()
    return [program, str(peers.WORKERS / "node" / "peer.js"), str(home), *words]


def _loop(words: list[str]) -> list[str]:
    _, ttl, name = words
    keys = wire.keys_for("redlock:", [name])
    token = "0" * 40
    acquire = _connect.pack(wire.acquire(keys, token, float(ttl), int(_TIME), 3600.0).words)
    release = _connect.pack(wire.release(keys, token).words)
    return [str(peers.loop()), *words, acquire.hex(), str(acquire.index(_TIME.encode())), release.hex()]


THREADS = Subject("redlock-quorum, threads", "ours", _module("redlock_threads"))
ASYNCIO = Subject("redlock-quorum, asyncio", "ours", _module("redlock_asyncio"), tasks=True)
OURS = (THREADS, ASYNCIO)

# The limits.  What is measured of this library is compared with these two, which wait for a majority as it does.
SOCKETS = Subject("bare sockets, majority", "limit", _module("bare_sockets", "majority"))
PROTOCOLS = Subject("bare asyncio protocols, majority", "limit", _module("bare_protocols"), tasks=True)
SOCKETS_ALL = Subject("bare sockets, all", "limit", _module("bare_sockets", "all"))
LOOP = Subject("poll(2) in C, majority", "limit", _loop)

POOL = Subject("redis-py, a thread for each master", "home-made", _module("redis_py", "pool"))
GATHER = Subject("redis-py, asyncio.gather", "home-made", _module("redis_gather"), tasks=True)
SINGLE_TASKS = Subject(
    "redis-py Lock on asyncio, one master", "home-made", _module("redis_gather", "single"), tasks=True, quorum=False
)
SINGLE = Subject("redis-py Lock, one master", "home-made", _module("redis_py", "single"), quorum=False)

REDLOCK_PY = Subject("redlock-py, threads", "peer", _peer("redlock_py"))
POTTERY = Subject("pottery, threads", "peer", _peer("pottery_threads"))
AIOPOTTERY = Subject("pottery, asyncio", "peer", _peer("pottery_asyncio"), tasks=True)
AIOREDLOCK = Subject("aioredlock, asyncio", "peer", _peer("aioredlock"), tasks=True)
NODE = Subject("node-redlock, Node", "peer", _node, tasks=True)
PEERS = (NODE, REDLOCK_PY, AIOREDLOCK, AIOPOTTERY, POTTERY)

EVERYBODY = (*OURS, SOCKETS, SOCKETS_ALL, PROTOCOLS, LOOP, POOL, GATHER, SINGLE, *PEERS)


def limit(subject: Subject) -> Subject:
    """What one of ours is compared with."""
    return PROTOCOLS if subject.tasks else SOCKETS


def only(subjects: Sequence[Subject], *kinds: Kind) -> list[Subject]:
    return [subject for subject in subjects if subject.kind in kinds]
