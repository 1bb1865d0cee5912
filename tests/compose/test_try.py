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


_ONE = """
cp -R compose "$TMPDIR/compose"
cd "$TMPDIR"
export REDLOCK_IMAGE=$REDLOCK_PROJECT-master COMPOSE_PROJECT_NAME=$REDLOCK_PROJECT
compose/image.sh "$REDLOCK_IMAGE"
docker-compose() { command $REDLOCK_COMPOSE "$@"; }
(
@@
)
export REDLOCK_MASTERS=redis://locks@127.0.0.1:6390 REDLOCK_PASSWORD=$(cat compose/one-master/secrets/password)
for again in 1 2; do
    until redlock-run --outage-timeout 5 job -- echo it works; do sleep 1; [ $SECONDS -lt 60 ]; done
    docker restart $(docker ps --quiet --filter "label=com.docker.compose.project=$REDLOCK_PROJECT")
done
"""


@pytest.mark.timeout(300)
def test_one_master_by_the_commands_at_the_head_of_its_file(temporary):
    lines = (COMPOSE / "one-master.yml").read_text().splitlines()
    commands = "\n".join(line[1:].partition(" or `")[0] for line in lines if line.startswith("#   "))
    done = run(COMPOSE / "daemon.sh", "bash", "-ec", _ONE.replace("@@", commands), TMPDIR=str(temporary))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("it works") == 2, done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_nothing_is_left_of_one_that_was_broken_off(how, temporary):
    process = subprocess.Popen(
        [str(COMPOSE / "try.sh")], env={**ENVIRONMENT, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        said = [next(process.stdout, "")]
        while said[-1] and "healthy masters" not in said[-1]:
            said.append(next(process.stdout, ""))
        getattr(process, how)()
        said += process.stdout
    assert process.wait() == (143 if how == "terminate" else -9), "".join(said)
