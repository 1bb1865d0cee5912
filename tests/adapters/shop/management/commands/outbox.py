"""``outbox``: leads, until it is told to end."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from redlock.adapters.django import masters


class Command(BaseCommand):  # type: ignore[misc]
    def handle(self, *args: Any, **options: Any) -> None:
        masters().leader("outbox", ttl=50).run(self.lead)

    def lead(self, term: Any) -> None:
        print("leads", term.number, flush=True)
        term.wait_stop()
