"""What Prometheus itself makes of its configuration, of the dashboard's queries and of the alerts in the documentation."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import yaml

from tests.compose.programs import COMPOSE, ROOT, run
from tests.servers.needs import missing

PAGE = ROOT / "docs" / "howto" / "monitoring.md"


@pytest.fixture
def promtool():
    found = shutil.which("promtool")
    if found is None:
        missing("promtool (Debian: apt-get install prometheus)")
    return found


@pytest.fixture
def alerts(tmp_path):
    [rules] = re.findall(r"^groups:\n.*?(?=^```$)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    file = tmp_path / "alerts.yml"
    file.write_text(rules)
    return file


def test_the_configuration(promtool):
    done = run(promtool, "check", "config", COMPOSE / "metrics" / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_queries_of_the_dashboard(promtool, tmp_path):
    """Each as a rule, for of those it says whether they can be read."""
    dashboard = json.loads(text := (COMPOSE / "metrics" / "dashboard.json").read_text())
    assert not re.search(r"\brate\([^[]+\[\d", text), "a fixed range is empty where scrapes are further apart"
    queries = [
        target["expr"].replace("$__rate_interval", "1m") for panel in dashboard["panels"] for target in panel["targets"]
    ]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    for rule, right in ((rules, True), ([*rules, {"record": "panel:wrong", "expr": f"{queries[0]})"}], False)):
        (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rule}]}))
        done = run(promtool, "check", "rules", tmp_path / "rules.yml")
        assert (done.returncode == 0) is right, done.stdout + done.stderr


# An alert, series of two hours in steps of a minute in which it is to fire at the end, and one thing less for which it is not.
FIRES = {
    "LockQuorumLost": [
        ('redlock_quorum_losses_total{instance="a"}', "0x110 1x10", "0x100 1x20"),
        ('redlock_quorum_recoveries_total{instance="a"}', "0x120", "0x110 1x10"),
    ],
    "LeasesLost": [('redlock_losses_total{reason="expired"}', "0x110 1x10", "1x120")],
    "LockWaits": [("redlock_oldest_wait_start_timestamp_seconds", "7000x120", "7190x120")],  # it is 7200 then
    "LockMastersSlow": [('redlock_acquire_duration_seconds_count{outcome="slow"}', "0x110 1x10", "1x120")],
    "LockFleetDisagrees": [('redlock_fleet_disagreements_total{outcome="refused"}', "0x110 1x10", "1x120")],
    "LockMasterDown": [('redlock_master_votes{master="m"}', "0x120", "1x120")],
    "LockQuorumNoMargin": [("redlock_can_lose", "0x120", "1x120")],
    "LockMasterClock": [('redlock_master_clock_offset_seconds{master="m"}', "-1.5x120", "-0.5x120")],
}


@pytest.mark.parametrize("quiet", [False, True], ids=["fires", "is-quiet"])
def test_the_alerts(promtool, alerts, tmp_path, quiet):
    named = [rule["alert"] for group in yaml.safe_load(alerts.read_text())["groups"] for rule in group["rules"]]
    assert set(named) == set(FIRES), "of each alert it is known when it fires"
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": (wrong, fine)[quiet]} for series, wrong, fine in FIRES[name]],
            "promql_expr_test": [{
                "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})', "eval_time": "2h",
                "exp_samples": [] if quiet else [{"labels": "{}", "value": 1}],
            }],
        }
        for name in named
    ]  # fmt: skip
    whole = {"rule_files": [str(alerts)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(whole))
    done = run(promtool, "test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr
