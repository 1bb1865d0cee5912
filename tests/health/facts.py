"""Facts of made-up masters, as an examination would find them."""

from __future__ import annotations

import secrets
from typing import Any

from redlock._health.facts import ClockOffset, MasterFacts
from redlock._health.verdict import ClientOptions

NOW = 1000.0
CLIENT_OPTIONS = ClientOptions(max_ttl=60.0, restart_guard=True, node_timeout=0.25, drift_factor=0.01)


def healthy(number: int = 0, *, info: dict[str, str] | None = None, **facts: Any) -> MasterFacts:
    """A master that has been up for a day, without persistence; ``info`` on top of what it says."""
    says = {
        "redis_version": "7.4.1", "run_id": secrets.token_hex(20), "uptime_in_seconds": "86400", "role": "master",
        "redis_mode": "standalone", "maxmemory": "0", "used_memory": "1000000", "maxmemory_policy": "noeviction",
        "evicted_keys": "0", "connected_slaves": "0", "cluster_enabled": "0", "aof_enabled": "0",
    }  # fmt: skip
    known: dict[str, Any] = {
        "connected": True, "at": NOW, "latency": 0.001, "clock": ClockOffset(0.0, 0.0005), "appendonly": "no",
        "appendfsync": "everysec", "info": says | (info or {}),
    }  # fmt: skip
    return MasterFacts(f"10.0.0.{number}:6379", f"redis://10.0.0.{number}:6379", **(known | facts))


def dead(number: int = 0, failure: Any = "connection", text: str = "Connection refused.") -> MasterFacts:
    return MasterFacts(f"10.0.0.{number}:6379", f"redis://10.0.0.{number}:6379", failure=failure, text=text)


def with_last(last: MasterFacts, size: int = 5) -> list[MasterFacts]:
    """Healthy ones, and ``last``."""
    return [*(healthy(number) for number in range(size - 1)), last]
