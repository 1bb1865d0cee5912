"""How masters are named where they are given as text (R34), for the commands."""

from __future__ import annotations

from redlock.options import master_name, masters

__all__ = ["master_name", "masters"]
