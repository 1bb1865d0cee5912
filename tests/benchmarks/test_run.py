"""Everything is measured, with tiny numbers: so it cannot rot.  Its figures are nobody's business here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import peers, servers
from benchmarks.__main__ import SCENARIOS
from benchmarks.records import Results
from benchmarks.subjects import EVERYBODY, LOOP, NODE, PEERS, POTTERY, REDLOCK_PY, only
from redlock.testing import LocalMasters
from tests.servers.look import eventually
from tests.servers.needs import missing
from tests.servers.one import with_functions
from tools.performance import page

ROOT = Path(__file__).parent.parent.parent
MINUTES = 60
pytestmark = pytest.mark.timeout(15 * MINUTES)  # a hundred interpreters are started, on whatever machine


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks", "--effort", "tiny", "--out", str(folder), *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=14 * MINUTES, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, Results.read(folder / "results.json")


PEERS_TITLES = {peer.title for peer in PEERS}


def no_peers():
    """Why the other libraries cannot be installed, if so."""
    try:
        peers.environment()
    except peers.LeftOut as why:
        return f"the other libraries: {why}"
    return ""


@pytest.mark.parametrize("server", with_functions(), ids=lambda path: Path(path).name)
def test_the_ways_to_ask_a_server(server):
    with LocalMasters(1, server=server) as masters:
        found = servers.measured(masters.client(0), rounds=2, pairs=3)
    assert [*found][:2] == ["EVALSHA", "FCALL"]
    assert all(took > 0 and ratio > 0 for took, ratio in found.values())


@pytest.mark.longest
def test_one_tiny_run(tmp_path):
    """One test, for it takes more than a minute: each process that runs tests would make a run of its own."""
    said, results = run(tmp_path, *(["--no-peers"] if no_peers() else []))
    left_out = {"apart"} if "it takes two processors" in said else set()
    assert {record.scenario for record in results.records} >= set(SCENARIOS) - left_out
    assert len(results.records) > 100

    mine = only(EVERYBODY, "ours", "limit", "home-made")
    expected = {subject.title for subject in mine if subject is not LOOP or shutil.which("cc")}
    measured = {record.subject for record in results.of("latency") if record.value is not None}
    assert measured - PEERS_TITLES == expected
    assert set(results.left_out) - {LOOP.title} <= PEERS_TITLES

    # What has none says why; nothing is lost, and nothing is left behind, however slow the machine.
    for record in results.records:
        assert record.value is not None or record.note
        assert record.value is None or record.value >= 0 or record.unit in ("ms", "KB"), record
    for record in [*results.of("held", measure="lost"), *results.of("faults", measure="keys left behind")]:
        assert record.value == 0 or record.subject in PEERS_TITLES, record

    figures = [line.strip() for line in said.splitlines() if line.startswith("    ")]
    assert [line[:30] for line in figures] == [record.line()[:30] for record in results.records]
    assert "written to" in said

    page.write(results, tmp_path)
    text = "".join((tmp_path / name).read_text(encoding="utf-8") for name in page.PAGES)
    assert "$" not in text
    for name in ("latency", "sizes", "faults", "contention", "throughput"):
        assert f"](_static/performance/{name}.svg)" in text
        assert (tmp_path / "_static" / "performance" / f"{name}.svg").stat().st_size > 1000

    if why := no_peers():
        missing(why)
    out = set(results.left_out) - {LOOP.title}
    # The masters of this test know every request of these libraries. Abandoned ones do not run on every Python.
    assert {POTTERY.title, REDLOCK_PY.title}.isdisjoint(out), results.left_out
    assert NODE.title not in out or not shutil.which("npm"), results.left_out
    expected = {"latency", "peers and faults", "delays", "contention", "throughput"}
    for title in PEERS_TITLES - out:
        assert {record.scenario for record in results.records if record.subject == title} >= expected


def test_of_one_scenario_a_page_can_be_made_too(tmp_path):
    _, results = run(tmp_path, "--no-peers", "imports")
    page.write(results, tmp_path)
    assert "*Not measured in this run.*" in (tmp_path / "performance-limits.md").read_text(encoding="utf-8")


def test_transactions_of_a_real_database(tmp_path):
    _, results = run(tmp_path, "--no-peers", "transactions")
    if results.records[0].value is None:
        missing(f"PostgreSQL: {results.records[0].note}")
    assert [record.case for record in results.records] == [
        "what the fence adds", "what lock and fence add", "what the lock adds",
    ]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["--list"], 0, "throughput   "),
    (["--list"], 0, "shape   "),
    (["shape", "--help"], 0, "--write"),
    (["--help"], 0, "median"),
    (["speed"], 64, "no such scenario: speed; there are latency"),
])  # fmt: skip
def test_arguments(arguments, code, said):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=2 * MINUTES, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert said in done.stdout + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_it_leaves_no_process(ended, tmp_path):
    mark = f"REDLOCK_BENCHMARK_TEST={uuid.uuid4()}"
    name, value = mark.split("=")

    def alive():
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "contention", "--effort", "full", "--no-peers", "--out", str(tmp_path / "out")],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, name: value},
    )  # fmt: skip
    try:
        eventually(lambda: sum("benchmarks.workers" in words for words in alive().values()) == 4, 2 * MINUTES)
        process.send_signal(ended)
        _, said = process.communicate(timeout=2 * MINUTES)
        eventually(lambda: not alive(), 2 * MINUTES)
    finally:
        for pid in alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    if ended == signal.SIGINT:
        assert (process.returncode, said.strip()) == (130, "interrupted: nothing is written, nothing runs any more")
    assert not (tmp_path / "out").exists()
