"""Each broken variant still finds what it breaks: a script or a method that was changed must not leave it behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from chaos.variants import VARIANTS


@pytest.mark.parametrize("name", VARIANTS)
def test_it_finds_what_it_breaks(name):
    """In a process of its own: it breaks the library for good."""
    program = f"from chaos.variants import VARIANTS; VARIANTS[{name!r}].apply()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
