"""The application: its table, and its check."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks

from redlock.fenced.django._check import views_inside_of_transactions


class FencedConfig(AppConfig):  # type: ignore[misc]
    """``"redlock.fenced.django"`` in ``INSTALLED_APPS``."""

    name = "redlock.fenced.django"
    label = "redlock_fenced"
    verbose_name = "Fences of redlock"

    def ready(self) -> None:
        checks.register(views_inside_of_transactions)
