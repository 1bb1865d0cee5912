"""The five masters of ``compose/``: what is written there.  `test_try.py` starts them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import prometheus_client
import pytest
import yaml

from redlock.observe.prometheus import PrometheusObserver
from tests.compose.programs import COMPOSE, ENVIRONMENT, run
from tests.servers.look import eventually

MASTERS = [f"master-{number}" for number in range(1, 6)]
OVERLAYS = sorted(path.name for path in COMPOSE.glob("*.yml") if path.name != "compose.yml")


def read(name):
    found = yaml.safe_load((COMPOSE / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def keys(tree):
    if isinstance(tree, dict):
        return {str(key) for key in tree} | {key for value in tree.values() for key in keys(value)}
    return {key for value in tree for key in keys(value)} if isinstance(tree, list) else set()


def unreadable(document):
    """What docker-compose 1.29 or Compose v2 would refuse, or complain of."""
    return ({"version", "name", "include"} & set(document)) | ({"start_interval"} & keys(document))


def open_ports(document):
    """Ports that are published to more than this machine."""
    ports = [port for service in document["services"].values() for port in service.get("ports", [])]
    return [port for port in ports if not str(port).startswith("127.0.0.1:")]


# -- what is written ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compose.yml", *OVERLAYS])
def test_every_compose_reads_it_and_nobody_else_reaches_it(name):
    assert unreadable(read(name)) == set()
    assert open_ports(read(name)) == []


def test_five_masters_that_share_nothing():
    document = read("compose.yml")
    services = document["services"]
    assert list(services) == MASTERS
    assert sorted(document["volumes"]) == MASTERS
    assert len({service["ports"][0] for service in services.values()}) == 5
    for name, service in services.items():
        data, functions, load = service["volumes"]
        assert data == f"{name}:/data"
        assert functions == "${REDLOCK_FUNCTIONS:-./functions}:/functions:ro"
        assert load == "./one-master/load.sh:/load.sh:ro"
        assert service["restart"] == "no"  # the word: YAML's own no is false, which Compose refuses
        assert service["healthcheck"]["test"]
        assert service["mem_limit"]
        assert service["cpus"]
        assert service["environment"]["APPENDONLY"] == "yes"
        command = service["command"][-1]
        assert "--appendfsync always" in command
        assert "--maxmemory-policy noeviction" in command


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_is_over_these_masters(name):
    services = read(name)["services"]
    others = set(services) - set(MASTERS)
    if others == set(services):
        return  # something beside the masters
    assert list(services) == MASTERS, "all five, or they are not alike"
    # `environment` is merged key by key, so only keys that compose.yml has can take effect in its command.
    known = set(read("compose.yml")["services"]["master-1"]["environment"])
    for service in services.values():
        assert set(service["environment"]) <= known
        assert not {"command", "image", "restart"} & set(service)


def test_every_dollar_is_meant():
    """One dollar is a variable of Compose, two are one for the shell in the container."""
    for path in COMPOSE.glob("*.yml"):
        text = path.read_text(encoding="utf-8").replace("$$", "")
        images = {f"REDLOCK_{of}IMAGE" for of in ("", "WORKER_", "PROMETHEUS_", "GRAFANA_")}
        known = {"REDLOCK_FUNCTIONS", "REDLOCK_PORTS", "REDLOCK_SECRETS", *images}
        assert set(re.findall(r"\$\{?(\w+)", text)) <= known, path.name


def test_the_page_says_where_its_commands_come_from():
    page = (COMPOSE / "README.md").read_text(encoding="utf-8")
    assert "pip install" in page.partition("\nredlock-")[0]


def test_the_dashboard_shows_metrics_that_there_are():
    """A panel with a name or a label that nobody exports stays empty, and looks like good news."""
    registry = prometheus_client.CollectorRegistry()
    PrometheusObserver(registry)
    suffixes = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "gauge": ("",)}
    exported = {f"{one.name}{suffix}" for one in registry.collect() for suffix in suffixes[one.type]}
    labels = {"le", "lock", "master", "outcome", "reason"}
    dashboard = json.loads((COMPOSE / "metrics" / "dashboard.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) >= len(dashboard["panels"]) > 0
    for query in queries:
        named = set(re.findall(r"redlock_\w+", query))
        assert named, query
        assert named <= exported, query
        assert {label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")} <= labels, query
    assert [source["uid"] for source in read("metrics/grafana-source.yml")["datasources"]] == ["redlock"]
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {"redlock"}


# -- the scripts, without Docker ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificates") / "secrets"
    done = run(COMPOSE / "certificates.sh", folder, "2", REDLOCK_PORTS="650")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("master", MASTERS)
def test_every_master_has_a_certificate_for_its_names(secrets, master):
    certificate = secrets / master / "certificate.pem"
    for name in (["-verify_hostname", master], ["-verify_hostname", "localhost"], ["-verify_ip", "127.0.0.1"]):
        done = run("openssl", "verify", "-CAfile", secrets / "ca.pem", "-purpose", "sslserver", *name, certificate)
        assert done.returncode == 0, done.stderr
    other = run("openssl", "verify", "-CAfile", secrets / "ca.pem", "-verify_hostname", "elsewhere", certificate)
    assert other.returncode != 0


def test_the_users_are_those_of_redlock_check(secrets):
    """They may run no scripts, for each master loads the functions when it is started (R44)."""
    rule = " ".join(shlex.split(run("redlock-check", "--acl", "--functions").stdout))
    functions = run("redlock-check", "--functions").stdout
    password = (secrets / "password").read_text().strip()
    assert len(password) >= 32
    for master in MASTERS:
        users = (secrets / master / "users.acl").read_text()
        loader = hashlib.sha256((secrets / master / "loader").read_text().strip().encode()).hexdigest()
        assert f"user loader on #{loader} resetchannels -@all +function|load\n" in users
        assert (secrets / master / "functions.lua").read_text() == functions
        assert "user default off\n" in users
        assert re.search(rf"^user locks on #[0-9a-f]{{64}} {re.escape(rule)}$", users, re.MULTILINE)
        assert password not in users


def test_only_the_owner_comes_to_the_secrets(secrets):
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    # the server in the container is another user, to whom its own folder is shown
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o444 for path in (secrets / "master-1").iterdir())
    assert not list(secrets.glob("openssl*")), "nothing that was in the way is left"
    assert "rediss://127.0.0.1:6505" in (secrets / "redlock.toml").read_text()


def test_certificates_that_are_in_use_are_not_overwritten(secrets):
    before = (secrets / "ca.pem").read_bytes()
    done = run(COMPOSE / "certificates.sh", secrets)
    assert done.returncode == 64
    assert "remove it first" in done.stderr
    assert (secrets / "ca.pem").read_bytes() == before


@pytest.mark.parametrize(
    "words", [["image.sh", "name", "no-such-server"], ["try.sh", "--help"], ["try.sh", "nonsense"]]
)
def test_what_a_script_does_not_know(words):
    done = run(COMPOSE / words[0], *words[1:])
    assert (done.returncode, done.stdout) == (64, "")
    assert words[-1] in done.stderr or words[0] == "try.sh"


def test_try_says_what_is_missing(tmp_path):
    for program in ("bash", "dirname"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    done = run(str(shutil.which("bash")), COMPOSE / "try.sh", PATH=str(tmp_path))
    assert done.returncode == 69
    assert "docker.io" in done.stderr


@pytest.mark.parametrize(("words", "there", "said"), [
    (["--backend", "compose"], False,
     "backend compose: no docker (Debian: apt-get install docker.io docker-compose); --backend auto"),
    (["--backend", "compose", "--masters", "7"], True, "--masters is 7, with --backend compose it must be at most 5"),
    (["--backend", "compose", "--persistence", "everysec"], True, "it must be always or none"),
    (["--backend", "compose", "--faults", "clock"], True,
     "fault clock with backend compose: containers have the machine's clock"),
    (["--backend", "compose", "--server", "/no/server"], True, "'/no/server' is not a program"),
    (["--backend", "compose", "--faults", "disk"], True, "fault disk with backend compose"),
])  # fmt: skip
def test_the_harness_says_what_it_cannot_do(words, there, said, tmp_path):
    """Where there is no Docker; and, with one that only says that it is there, what no Docker could do."""
    for program in ("bash", "dirname", "setpriv", "setsid"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    if there:
        for program in ("docker", "docker-compose"):
            (tmp_path / program).symlink_to(str(shutil.which("true")))
    done = run(sys.executable, "-m", "chaos", "run", *words, "--out", tmp_path / "out", PATH=str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(60)
def test_what_a_killed_daemon_sh_had_is_removed_before_it_is_buried(tmp_path):
    """In a container its parent may never do that."""
    for program in ("docker", "docker-compose"):
        (tmp_path / program).symlink_to(str(shutil.which("true")))
    (tmp_path / "temporary").mkdir()
    here = {"PATH": f"{tmp_path}{os.pathsep}{ENVIRONMENT['PATH']}", "TMPDIR": str(tmp_path / "temporary")}
    process = subprocess.Popen(
        [COMPOSE / "daemon.sh", "sh", "-c", "sleep 1; echo works; exec sleep 60"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env={**ENVIRONMENT, **here},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        with process.stdout:
            assert process.stdout.readline() == b"works\n"
            assert list((tmp_path / "temporary").iterdir())
            process.kill()
            assert process.stdout.read() == b""
        eventually(lambda: not list((tmp_path / "temporary").iterdir()))
    finally:
        process.wait()


@pytest.mark.timeout(60)
def test_a_number_that_somebody_else_has_got_is_not_waited_for_nor_killed(tmp_path):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        try:
            pid = str(stranger.pid)
            folder = tmp_path / "redlock-compose-folder"
            folder.mkdir()
            done = run(COMPOSE / "daemon.sh", "--after", pid, "1", pid, "1", "private", folder)
            assert (done.returncode, done.stderr) == (0, "")
            assert not folder.exists()
            assert stranger.poll() is None
        finally:
            stranger.kill()


# -- the worker, without masters ---------------------------------------------------------------------


def loaded(name):
    specification = importlib.util.spec_from_file_location(name, COMPOSE / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def worker():
    return loaded("worker")


def test_the_ledger_refuses_a_smaller_fence(worker, tmp_path, capsys):
    path = tmp_path / "ledger.db"
    with closing(worker.opened(path)) as database:
        for payment in ((1, 100, "a"), (2, 200, "b"), (3, 200, "b")):
            worker.write(database, 0, *payment)
        with pytest.raises(worker.Refused):
            worker.write(database, 0, 2, 199, "a")
    assert worker.audit(path) == 0
    assert "account 0: balance 3, 3 payments by 2 workers" in capsys.readouterr().out


def test_the_audit_notices_a_payment_that_was_overwritten(worker, tmp_path, capsys):
    path = tmp_path / "ledger.db"
    with closing(worker.opened(path)) as database:
        worker.write(database, 0, 1, 100, "a")
        worker.write(database, 0, 1, 200, "b")  # b had read before a wrote
    assert worker.audit(path) == 1
    assert "LOST: 1 payments" in capsys.readouterr().out


def test_a_payment_is_whole(worker, tmp_path):
    with closing(worker.opened(tmp_path / "ledger.db")) as database:
        database.execute("DROP TABLE payment")
        with pytest.raises(sqlite3.OperationalError):
            worker.write(database, 0, 1, 100, "a")
        assert database.execute("SELECT balance FROM account WHERE id = 0").fetchone() == (0,)


@pytest.mark.parametrize(("entries", "code", "says"), [
    ("", 0, "one at a time"),
    ("1 a\n1 a\n2 b\n3 a\n", 0, "term 1: a, 2 entries\nterm 2: b, 1 entries\nterm 3: a, 1 entries\none at a time"),
    ("1 a\n2 b\n1 a\n", 1, "MIXED"),
    ("1 a\n1 b\n", 1, "MIXED"),
])  # fmt: skip
def test_the_audit_notices_two_leaders_at_a_time(entries, code, says, tmp_path, capsys):
    (tmp_path / "consumed").write_text(entries, "utf-8")
    assert loaded("consumer").audit(tmp_path / "consumed") == code
    assert says in capsys.readouterr().out
