"""Marks that say who proves what; the table of `tests/owners.md` is written from them (`docs/owners.py`)."""

from __future__ import annotations

import pytest


def proves(*rules: str) -> pytest.MarkDecorator:
    """This test, or with ``pytestmark`` this file, is the owner of these rules."""
    return pytest.mark.proves(*rules)


def witness(*rules: str) -> pytest.MarkDecorator:
    """It shows them once on real servers."""
    return pytest.mark.witness(*rules)
