"""The manifests of ``compose/kubernetes``: what a cluster would say of them, our rules, and the server's own command."""

from __future__ import annotations

import copy
import importlib
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from redlock import Masters
from tests.compose.manifests import KUBERNETES, MAX_TTL, SERVER, SET, at, broken, containers, pods, read
from tests.compose.programs import ENVIRONMENT, ROOT, run
from tests.servers.needs import missing
from tests.servers.one import free_port

OLDEST = "1.31"  # of which all fields are stable


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kubernetes") / "secrets"
    made = run(KUBERNETES / "secrets.sh", folder)
    assert (made.returncode, made.stdout.strip()) == (0, str(folder)), made.stderr
    return folder


@pytest.fixture(scope="module")
def checker():
    """Imported where it is needed: that takes more than a second."""
    return importlib.import_module("kubernetes_validate")


@pytest.mark.parametrize("version", [OLDEST, "latest"])
@pytest.mark.parametrize("name", sorted(read()))
def test_a_cluster_would_take_it(checker, name, version):
    checker.validate(read()[name], checker.latest_version() if version == "latest" else version, strict=True)


def test_the_checker_checks(checker):
    document = read()["StatefulSet/master"]
    document["spec"]["minReadySecond"] = 60
    with pytest.raises(checker.ValidationError):
        checker.validate(document, OLDEST, strict=True)


def test_every_rule_is_kept():
    assert broken(read()) == set()


@pytest.mark.parametrize(("place", "value", "rule"), [
    (f"{SET} replicas", 4, "one set of five (R1)"),
    (f"{SERVER} readinessProbe exec command 2", "redis-cli ping", "ready is who votes (R21)"),
    ("Deployment/shop spec template metadata labels redlock-client", "no", "Deployment/shop: reaches the masters"),
    (f"{SERVER} securityContext capabilities", {}, "StatefulSet/master: no privileges"),
])  # fmt: skip
def test_a_rule_sees_what_breaks_it(place, value, rule):
    documents = copy.deepcopy(read())
    way, _, last = place.rpartition(" ")
    inside = at(documents, way)
    inside[int(last) if isinstance(inside, list) else last] = value
    assert broken(documents) == {rule}


def test_the_addresses_are_those_of_the_set(secrets):
    config = tomllib.loads((secrets / "redlock.toml").read_text())
    spec = read()["StatefulSet/master"]["spec"]
    assert config["masters"] == [
        f"rediss://master-{number}.{spec['serviceName']}.redlock.svc.cluster.local:6379"
        for number in range(spec["replicas"])
    ]
    assert config["max_ttl"] == MAX_TTL == Masters(["redis://10.0.0.1:6379"]).max_ttl
    assert spec["minReadySeconds"] == config["max_ttl"]
    for pod in pods(read()).values():
        for container in containers(pod):
            for mount in container["volumeMounts"]:
                assert mount["mountPath"] in ("/secrets", str(Path(config["tls_ca"]).parent))


def test_the_secrets_are_for_their_owner(secrets):
    assert secrets.stat().st_mode & 0o077 == 0
    assert {file.name for file in secrets.iterdir()} == {
        "ca.crt", "tls.crt", "tls.key", "users.acl", "password", "redlock.toml", "functions.lua", "loader",
    }  # fmt: skip
    password = (secrets / "password").read_text()
    assert password not in (secrets / "users.acl").read_text()
    assert run(KUBERNETES / "secrets.sh", secrets).returncode == 64
    assert (secrets / "password").read_text() == password


def test_kustomize_makes_secrets_of_them(secrets, tmp_path):
    if not shutil.which("kubectl"):
        pytest.skip("there is no kubectl, and no package of Debian has it")
    folder = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, folder, ignore=shutil.ignore_patterns("secrets"))
    shutil.copytree(secrets, folder / "secrets")
    built = run("kubectl", "kustomize", folder)
    assert built.returncode == 0, built.stderr
    assert re.search(r"secretName: masters-\w{10}\n", built.stdout)
    assert re.search(r"secretName: redlock-\w{10}\n", built.stdout)
    assert built.stdout.count("namespace: redlock\n") == 7
    assert "kind: Deployment" not in built.stdout


def test_the_image_has_both_commands_and_no_root():
    lines = (ROOT / "compose/Dockerfile").read_text().splitlines()
    assert any("pip install" in line and "/source[prometheus]" in line for line in lines)
    assert lines[-1] == "USER 999:999"
    for pod in ("CronJob/redlock-check", "Deployment/shop"):
        security = pods(read())[pod]["spec"]["securityContext"]
        assert (security["runAsUser"], security["runAsGroup"]) == (999, 999)


@pytest.fixture
def master(secrets, tmp_path):
    """A server that is started with the command of the manifest; its port, and the probe as a function."""
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        missing("redis-server")
    (server,) = pods(read())["StatefulSet/master"]["spec"]["containers"]
    port = free_port()
    here = [word.replace("/secrets/", f"{secrets}/") for word in server["command"]]
    here[here.index("--tls-port") + 1] = str(port)
    started = subprocess.Popen([*here, "--bind", "127.0.0.1"], cwd=tmp_path, stdout=subprocess.DEVNULL, env=ENVIRONMENT)

    def ended(what, max_ttl="", more=""):
        *shell, line = what["exec"]["command"]
        line = line.replace("/secrets/", f"{secrets}/").replace("redis-cli ", f"redis-cli -p {port} {more} ")
        environment = {**ENVIRONMENT, "MAX_TTL": max_ttl}
        return subprocess.run([*shell, line], env=environment, capture_output=True, text=True, check=False).returncode

    def probe(max_ttl, more=""):
        return ended(server["readinessProbe"], max_ttl, more)

    assert ended(server["lifecycle"]["postStart"]) == 0
    yield port, probe
    started.terminate()
    assert started.wait(30) == 0


def wait_until(look):
    until = time.monotonic() + 60
    while not look():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_probe_and_a_client_and_nobody_else(master, secrets):
    port, probe = master
    wait_until(lambda: probe("0") == 0)
    assert probe("60") != 0, "it has not been up for so long"
    assert probe("0", "-p 1") != 0, "nothing answers there"
    password = (secrets / "password").read_text()
    tls = f"ssl_ca_certs={secrets}/ca.crt"
    url = f"rediss://locks:{password}@localhost:{port}?{tls}"
    checked = run("redlock-check", url, "--json")
    assert '"code": "recently-restarted"' in checked.stdout
    assert '"rights_missing": []' in checked.stdout
    assert '"code": "functions"' not in checked.stdout
    assert '"code": "more-rights-than-needed"' not in checked.stdout
    with Masters([url], restart_guard=False) as masters, masters.lock("job") as lease:
        assert lease.fence
    for other in (f"rediss://localhost:{port}?{tls}", f"rediss://health:none@localhost:{port}?{tls}"):
        with Masters([other], restart_guard=False) as masters:
            assert masters.check().quorum.voting == 0
