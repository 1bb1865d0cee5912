"""``sweep SECONDS``: says what it was given, and works for so long."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand

from redlock.adapters.django import one_at_a_time


class Command(BaseCommand):  # type: ignore[misc]
    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("seconds", type=float)

    @one_at_a_time(ttl=50, timeout=0)
    def handle(self, *args: Any, lease: Any, seconds: float, **options: Any) -> None:
        self.stdout.write(f"sweeps {lease.name} {lease.fence}")
        self.stdout.flush()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            lease.ensure()
            time.sleep(0.01)
        self.stdout.write("swept")
