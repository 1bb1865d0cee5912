"""What PyInstaller has to know of this package to pack it into a program; PyInstaller finds this by an entry point."""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """Where its hooks are: a file for each module that needs more than its imports say."""
    return [str(Path(__file__).parent)]
