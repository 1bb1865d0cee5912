"""Where a Docker daemon can be had: the five masters of ``compose/`` are started, broken and removed."""

from __future__ import annotations

import subprocess

import pytest

from tests.compose.programs import COMPOSE, ENVIRONMENT, run


@pytest.mark.longest
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "overlays",
    [[], ["volatile"], ["app"], ["tls", "app"], ["service"]],
    ids=lambda overlays: "-".join(overlays) or "plain",
)
def test_it_works(overlays, temporary):
    done = run(COMPOSE / "try.sh", *overlays, TMPDIR=str(temporary))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "-- all was as it should be"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_nothing_is_left_of_one_that_was_broken_off(how, temporary):
    process = subprocess.Popen(
        [str(COMPOSE / "try.sh")],
        env={**ENVIRONMENT, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process.stdout:
        said = [next(process.stdout, "")]
        while said[-1] and "healthy masters" not in said[-1]:
            said.append(next(process.stdout, ""))
        getattr(process, how)()
        said += process.stdout
    assert process.wait() == (143 if how == "terminate" else -9), "".join(said)
