"""How long a majority is valid (R6): its TTL from before the request was sent, less what clocks may differ."""

from __future__ import annotations

from functools import lru_cache

# Redis rounds an expiry to whole milliseconds on both ends: 2 ms.  See docs/concepts/algorithm.md.
ROUNDING = 0.002


@lru_cache(maxsize=64)  # each acquire asks the same
def drift(ttl: float, factor: float) -> float:
    """How far clocks of different speed may drift apart over one TTL, in seconds."""
    return ttl * factor + ROUNDING


def valid_until(sent_at: float, ttl: float, factor: float) -> float:
    """The end of a lease whose request was sent at ``sent_at``.

    ``sent_at`` was read before the first byte was sent.  No key can have been set earlier.
    """
    return sent_at + ttl - drift(ttl, factor)
