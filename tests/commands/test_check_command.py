"""`redlock-check` as a program: what it prints in real situations, and how it ends."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redlock._cli.check import _checker
from redlock._cli.config import WantedMasters
from redlock._health import rights
from redlock.testing import clock_available
from tests.servers.commands import CHECK, run, start
from tests.servers.look import each, eventually
from tests.servers.needs import missing
from tools import check_situations

PATIENT = [*CHECK, "--node-timeout", "2", "--timeout", "12"]  # with masters that wait for a disk
PAGE = Path(check_situations.__file__).parent.parent / "docs" / "redlock-check-situations.md"


@pytest.fixture(scope="module")
def durable():
    with check_situations.servers_for(clock=False) as servers:
        yield servers


@pytest.fixture
def servers(durable):
    durable.reset()
    return durable


@pytest.fixture(scope="module")
def documented():
    """What the page has for each situation: the output and the exit code."""
    pattern = r"<!-- (\S+) -->\n\n```text\n\$ redlock-check[^\n]*\n(.*?)\$ echo \$\?\n(\d)\n```"
    return {name: (output, int(code)) for name, output, code in re.findall(pattern, PAGE.read_text("utf-8"), re.DOTALL)}


def worded(output: str) -> str:
    """Without what differs from run to run: figures, units, and where lines are broken."""
    output = check_situations.findings(output)
    output = re.sub(r"run_id \w+", "run_id …", output)
    output = re.sub(r"\b(redis|valkey) (?=\d)", "server ", output)
    output = check_situations.FIGURES.sub("#", output)
    return " ".join(output.split())


def test_masters_that_are_up_for_longer_than_others_are_like_them():
    line = "  127.0.0.1:{}  yes       0.24 ms  redis 7.0.15  {}  aof always   noeviction  1.53M   -0.1 ms\n"
    assert (
        check_situations.abridged(line.format(1, "3 min") + line.format(2, " 72 s"))
        == line.format(1, "3 min") + "  …\n"
    )


def brought_about(situation, servers):
    patient = ["--node-timeout", "1", "--timeout", "8"]
    if "clock-rate" in situation.codes:  # while the command starts, that clock gets ahead of what is allowed for 60 s
        patient += ["--max-ttl", "600"]
    with situation.prepare(servers) as urls:
        return check_situations.check(urls, *patient, *situation.options)


@pytest.mark.parametrize("name", check_situations.SITUATIONS)
def test_what_the_page_says_is_what_it_says(name, servers, documented):
    situation = check_situations.SITUATIONS[name]
    if situation.clock and not clock_available():
        missing("libfaketime")
    if name.startswith("tls") and shutil.which("redis-server") is None:
        missing("redis-server")  # others may have no TLS

    def compare(servers):
        code, output = -1, ""
        for _ in range(3):  # a machine that is busy may answer late once
            servers.reset()
            code, output = brought_about(situation, servers)
            if worded(output) == worded(documented[name][0]):
                break
        assert worded(output) == worded(documented[name][0])
        assert code == situation.exit_code == documented[name][1]
        assert set(re.findall(r"\[([a-z-]+)\]$", output, re.MULTILINE)) == situation.codes
        assert "a-wrong-one" not in output
        assert "a-password" not in output

    if situation.clock:
        with check_situations.servers_for(clock=True) as own:
            compare(own)
    else:
        compare(servers)


def test_the_page_has_every_situation_and_no_other(documented):
    assert set(documented) == set(check_situations.SITUATIONS)


def test_the_json_is_that_of_masters_check(servers):
    servers.kill(4)
    done = run([*PATIENT, "--json"], servers.urls)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert document["status"] == "WARNING"
    assert document["quorum"]["voting"] == 4
    assert document["quorum"]["probe"]["ok"] is True
    assert [master["url"] for master in document["masters"]] == servers.urls
    assert document["masters"][4]["findings"][0]["code"] == "unreachable"
    assert json.loads(run([*CHECK, "--json", "--no-probe"], servers.urls).stdout)["quorum"]["probe"] is None


def test_it_imports_what_it_needs(servers):
    code = (
        "import sys; from redlock._cli import check; check.main(sys.argv[1:]); "
        "print(*(name for name in sys.modules if name in "
        "('tomllib', 'redlock._cli.prometheus', 'redlock._cli.watch', 'redlock.testing', 'pytest')))"
    )
    done = run([sys.executable, "-c", code, "--no-probe", *servers.urls])
    assert done.stdout.splitlines()[-1] == ""
    assert done.stdout.splitlines()[-2].startswith("OK: ")


def test_max_ttl_is_taken_from_the_masters_and_a_check_keeps_none_alive(servers):
    """R21: a wrong one ends by itself, however often somebody checks."""
    each(servers, "set", "redlock-max-ttl:redlock:", "20000", None, 90_000)
    assert json.loads(run([*CHECK, "--json"], servers.urls).stdout)["quorum"]["max_ttl"] == 20
    assert servers.client(0).get("redlock-max-ttl:redlock:") == b"20000"
    assert servers.client(0).pttl("redlock-max-ttl:redlock:") <= 90_000
    done = run([*CHECK, "--json", "--max-ttl", "10"], servers.urls)
    [finding] = json.loads(done.stdout)["findings"]
    assert finding["code"] == "max-ttl"
    assert re.search(r"it ends in \d+ s if no client announces it again", finding["message"])
    each(servers, "persist", "redlock-max-ttl:redlock:")
    done = run([*CHECK, "--json", "--max-ttl", "10"], servers.urls)
    assert "does not end by itself, for a client of version 0.1" in json.loads(done.stdout)["findings"][0]["message"]


def test_the_throw_away_name_leaves_little_behind(servers):
    assert run(PATIENT, servers.urls).returncode == 0

    def left():
        """By name, of all masters, for how long."""
        announced = ("redlock-max-ttl:", "redlock-fleet:")
        each = [kept.items() for kept in servers.keys() if kept]
        return [(name, pttl) for kept in each for name, (_, pttl) in kept if not name.startswith(announced)]

    eventually(lambda: all(name.endswith("}:fence") for name, _ in left()))
    assert len({name for name, _ in left()}) == 1
    assert 3 <= len(left()) <= 5
    assert all(pttl <= 60_000 for _, pttl in left())


def test_the_acl_rule_is_pasted_as_it_was_printed(servers):
    """In a shell, in redis-cli, and through xargs.  It takes from a user what that has had before."""
    program = shutil.which("redis-cli") or shutil.which("valkey-cli") or missing("redis-cli")
    cli, setuser = f"{program} -p {servers.ports[0]}", "ACL SETUSER locker on '>secret'"
    prefix = 'it\'s $HOME `id` "x" !\\ *\u00e9'
    rule = run([*CHECK, "--acl", "--prefix", prefix]).stdout.strip()
    client = servers.client(0)
    words = rights.rule(prefix).split()
    client.execute_command("ACL", "SETUSER", "locker", "reset", "on", ">secret", *words)
    meant = user(client)
    for script in (
        f"{cli} {setuser} {rule}",
        f"{cli} <<'END'\n{setuser} {rule}\nEND",
        f"xargs {cli} {setuser} <<'END'\n{rule}\nEND",
    ):
        client.execute_command("ACL", "SETUSER", "locker", "reset", "+@all", "~theirs:*", "&theirs")
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30, check=False)
        assert (done.stdout.strip(), done.stderr) == ("OK", "")
        assert user(client) == meant
    client.acl_deluser("locker")


def user(client) -> set[str]:
    """What it has, in no order."""
    [found] = [one for one in client.acl_list() if one.startswith("user locker ")]
    return set(found.split())


def test_the_functions_and_their_rule_say_how_they_get_to_a_master():
    """R44."""
    done = run([*CHECK, "--functions"])
    assert (done.returncode, done.stdout.partition("\n")[0]) == (0, "#!lua name=redlock_1")
    assert "-x FUNCTION LOAD REPLACE" in done.stderr
    scripts, rule = run([*CHECK, "--acl"]), run([*CHECK, "--acl", "--functions"])
    assert "+fcall" in rule.stdout
    assert "+eval" not in rule.stdout
    assert "-x FUNCTION LOAD REPLACE" in rule.stderr
    assert "\n" not in scripts.stdout.strip(), "standard output is the rule alone"
    for word in ("ACL SETUSER name on '>password'", "aclfile", "ACL SAVE", "CONFIG REWRITE"):
        assert word in scripts.stderr  # how it outlives a restart


def test_watch_shows_what_changes_and_ends_with_the_last_status(servers):
    process = start([*CHECK, "--watch", "0.2", "--timeout", "2"], servers.urls)
    try:
        seen: list[str] = []
        while not seen or not seen[-1].startswith("OK: all"):
            seen.append(process.stdout.readline())
        servers.kill(4)
        while not all(any(text in line for line in seen) for text in ("WARNING: 4 of 5 masters vote", "unreachable")):
            seen.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert errors == ""
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("limit", [7, 10, 12, 24])
def test_too_few_open_files_are_unknown_and_no_fault_of_the_masters(servers, limit):
    """Python aborted at exit where there was none left for a library that it loads to end a thread."""
    done = run([*CHECK, *servers.urls], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    assert done.returncode == 3
    assert done.stdout == ""
    assert re.fullmatch(r"redlock-check: [^\n]*open files[^\n]* ulimit -n[^\n]*\n", done.stderr)


def test_as_many_open_files_as_it_asks_for_are_enough(servers):
    limit = 3 + 28
    done = run([*PATIENT, *servers.urls], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    assert done.returncode == 0, done.stderr


def test_a_file_with_the_masters(servers, tmp_path):
    rule = rights.rule("redlock:").split()
    each(servers, "execute_command", "ACL", "SETUSER", "locker", "on", ">geheim", *rule, masters=3)
    file = tmp_path / "redlock.toml"
    hosts = ", ".join(f'"redis://127.0.0.1:{port}"' for port in servers.ports[:3])
    file.write_text(
        f'masters = [{hosts}]\nusername = "locker"\npassword_env = "SECRET"\nmax_ttl = 30\n'
        "connect_timeout = 1\nfence_ttl = 100\ndrift_factor = 0.02\n",
        encoding="utf-8",
    )
    done = run([*PATIENT, "--config", str(file), "--json"], environment={"SECRET": "geheim"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["quorum"]["max_ttl"] == 30
    assert "geheim" not in done.stdout
    wrong = run([*CHECK, "--config", str(file)], environment={"SECRET": "anders"})
    assert wrong.returncode == 2
    assert "[auth]" in wrong.stdout
    assert "anders" not in wrong.stdout + wrong.stderr


@pytest.mark.parametrize(("how", "last"), [("--no-probe", "OK: all"), ("--json", "{")])
def test_a_reader_that_goes_away_ends_a_watch_soon_and_without_a_traceback(servers, how, last):
    process = start([*PATIENT, "--watch", "600", how], servers.urls)
    next(line for line in process.stdout if line.startswith(last))
    process.stdout.close()
    assert process.wait(30) == 3
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_tls_file_that_is_being_replaced_ends_no_watch():
    """What cannot be right is found at the start; later it may be right again at the next check."""
    if shutil.which("redis-server") is None:
        missing("redis-server")  # others may have no TLS
    with check_situations._tls_server() as (port, authority):
        check = _checker(WantedMasters((f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority}",), {}), 20.0, probe=False)
        file = Path(authority)
        assert check().masters[0].votes
        away = file.rename(file.with_suffix(".old"))
        assert not check().masters[0].votes
        away.rename(file)
        assert check().masters[0].votes
