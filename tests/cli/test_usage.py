"""What is wrong with the arguments of both commands: the exit code, one line that says what to do, no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redlock._cli import check, run


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("REDLOCK_MASTERS", "REDLOCK_USERNAME", "REDLOCK_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def ended(main, arguments):
    try:
        return main(arguments)
    except SystemExit as ending:
        return ending.code


@pytest.mark.parametrize(("arguments", "says"), [
    (["--no-such-option"], "unrecognized arguments"),
    ([], "REDLOCK_MASTERS"),
    (["redis://127.0.0.1:6379", "redis://127.0.0.1:6379/1"], "same server"),
    (["redis://:geheim@127.0.0.1:x"], "is no URL of a master"),
    (["redis://:geheim@"], "names no host"),
    (["nonsense"], "write redis://HOST:PORT"),
    (["redis://h,redis://i"], "give them one by one"),
    (["--timeout", "0", "redis://h"], "more than 0"),
    (["--timeout", "nan", "redis://h"], "more than 0"),
    (["--timeout", "1e308", "redis://h"], "'1e308': allowed is a number of seconds, more than 0 and at most 1e+09"),
    (["--timeout", "4e9", "redis://h"], "at most 1e+09"),
    (["--watch=1e12", "redis://h"], "at most 1e+09"),
    (["--config", "redis://u:geheim@h"], "redis://***@h: No such file"),
    (["--max-ttl", "0.1", "redis://h"], "node_timeout"),
    (["--watch", "--prometheus", "redis://h"], "--watch needs"),
    (["--json", "--prometheus", "redis://h"], "not allowed with"),
    (["--nonsense=redis://:geheim@h"], "unrecognized arguments: --nonsense=redis://***@h"),
    (["--watch", "redis://:geheim@"], "names no host"),
    (["--watch", "0", "redis://h"], "more than 0"),
    (["--plan", "redis://i", "--json", "redis://h"], "--plan takes no other options"),
    (["--plan", "", "redis://:geheim@h"], "--plan is empty: is the variable set"),
    (["--plan", " , ", "redis://:geheim@h"], "--plan is empty: is the variable set"),
    (["--plan", "b=redis://i", "redis://:geheim@h"], "one list has names and the other has none"),
    (["--plan", "a=redis://:geheim@i", "a=redis://:geheim@h"], "a has another address in the new list"),
    (["--config", "/does/not/exist"], "No such file"),
    (["--acl", "--config", "/does/not/exist"], "No such file"),
    (["--config", "", "redis://:geheim@h"], "--config is empty: is the variable set"),
    (["--acl", "--config", ""], "--config is empty: is the variable set"),
    (["--prefix", "a\0b", "redis://h"], "NUL"),
    (["--prefix", "caf\udce9", "redis://h"], "UTF-8"),
    (["--acl", "--prefix", "caf\udce9"], "UTF-8"),  # else the rule would be one for other keys
    (["--acl", "redis://:geheim@[::1:6379"], "is no URL of a master"),
    (["rediss://h?ssl_ca_certs=/does/not/exist"], "ssl_ca_certs=/does/not/exist: No such file"),
    ([""], "write redis://HOST:PORT"),
    (["--timeout", "redis://u:my geheim@h"], "argument --timeout: 'redis://***@h': allowed is"),
])  # fmt: skip
def test_redlock_check(arguments, says, capsys):
    assert ended(check.main, arguments) == 3
    output, errors = capsys.readouterr()
    assert says in errors
    assert "geheim" not in errors
    assert output == ""


HOST = ["--masters", "redis://h"]


@pytest.mark.parametrize(("arguments", "says"), [
    ([], "no command"),
    (["job", "--", ""], "no command"),
    (["--", "true"], "NAME"),
    (["job"], "write -- before the command"),
    (["job", "true"], "write -- before the command"),
    (["job", "redis://u:geheim@h", "--", "true"], "unrecognized arguments: redis://***@h"),
    (["job", "--"], "write it behind --"),
    (["job", "--", "true"], "REDLOCK_MASTERS"),
    (["job", "--no-such-option", "--", "true"], "unrecognized arguments"),
    (["job", "--wait", "3", "--no-wait", "--", "true"], "not allowed with"),
    (["job", "--wait", "3", "--outage-timeout", "3", "--", "true"], "not allowed with"),
    (["job", "--outage-timeout", "0", "--", "true"], "'0': allowed is a number of seconds, more than 0 and at most 1e+09, or inf"),
    (["--service", "job", *HOST, "--outage-timeout", "inf", "--", "true"], "--outage-timeout cannot be used with --service"),
    (["job", "--quiet", "--verbose", "--", "true"], "not allowed with"),
    (["job", "--wait", "-1", "--", "true"], "0 or more"),
    (["job", *HOST, "--ttl", "0", "--", "true"], "more than 0"),
    (["job", *HOST, "--ttl", "61", "--", "true"], "max_ttl"),
    (["job", *HOST, "--ttl", "0.5", "--", "true"], "node_timeout"),
    (["job", *HOST, "--ttl", "9", "--grace", "5", "--", "true"], "at most half of the TTL"),
    (["job", *HOST, "--max-hold", "0", "--", "true"], "'0': allowed is a number of seconds, more than 0"),
    (["", *HOST, "--", "true"], "1 to 512"),
    (["job", "--masters", "redis://:geheim@h:x", "--", "true"], "is no URL of a master"),
    (["job", "--config", "/does/not/exist", "--", "true"], "No such file"),
    (["job", *HOST, "--config", "", "--", "true"], "--config is empty: is the variable set"),
    (["job", "--config", "redis://u:geheim@h", "--", "true"], "redis://***@h: No such file"),
    (["job", *HOST, "--ttl", "1e12", "--", "true"], "at most 1e+09"),
    (["job", "--masters", "", "--", "true"], "--masters is empty"),
    (["job", "--masters", "rediss://h?ssl_ca_certs=/not/there", "--", "true"], "ssl_ca_certs=/not/there: No such file"),
    # With a blank, without a scheme, two of them, in a query: not a word of it is shown.
    (["job", "redis://:my geheim@h", "--", "true"], "unrecognized arguments: redis://***@h"),
    (["job", "u:geheim@h", "--", "true"], "unrecognized arguments: ***@h"),
    (["job", "u:geheim@h", "redis://u:ge heim@geheim@i", "--", "true"], "unrecognized arguments: ***@i"),
    (["job", "--x=u: geheim@h", "--", "true"], "unrecognized arguments: --x=***@h"),
    (["job", "redis://h?password=my geheim", "--", "true"], "unrecognized arguments: redis://h?password=***"),
    (["--service", "job", *HOST, "--wait", "3", "--", "true"], "--wait cannot be used with --service"),
    (["--service", "job", *HOST, "--no-wait", "--", "true"], "--no-wait cannot be used with --service"),
    (["--service", "job", *HOST, "--quiet", "--", "true"], "--quiet cannot be used with --service"),
    (["--service", "job", *HOST, "--hold-at-least", "3", "--", "true"], "--hold-at-least cannot be used with --service"),
    (["--service", "job", *HOST, "--restart", "often", "--", "true"], "'often' (choose from"),
    (["--service", "job", *HOST, "--grace", "8", "--", "true"], "at most half of the TTL (7.5 s)"),
    (["--service", "--", "true"], "NAME"),
    (["job", *HOST, "--restart", "always", "--", "true"], "--restart needs --service"),
])  # fmt: skip
def test_redlock_run(arguments, says, capsys):
    assert ended(run.main, arguments) == 64
    output, errors = capsys.readouterr()
    assert says in errors
    assert "geheim" not in errors
    assert output == ""


BOTH = ["--prefix", "--max-ttl", "--no-restart-guard", "--config"]


@pytest.mark.parametrize(("main", "arguments"), [
    (check.main, ["--config"]), (check.main, ["--limit"]), (check.main, ["--timeout"]), (check.main, ["--no-such-option"]),
    (check.main, ["--plan"]), (check.main, []),
    (run.main, ["job", "--slots"]), (run.main, ["job", "--config"]), (run.main, ["job", "--grace"]),
    (run.main, ["job", "--owner"]), (run.main, ["job", "--restart"]), (run.main, ["job", "--masters"]),
])  # fmt: skip
@pytest.mark.parametrize("value", ["x" * 6000, "9" * 6000])
def test_a_value_that_is_too_long_is_not_shown_whole(main, arguments, value, capsys, monkeypatch):
    """As in the errors of the library."""
    monkeypatch.setenv("REDLOCK_MASTERS", "redis://h")
    behind = ["--", "true"] if main is run.main else []
    assert ended(main, [*arguments, value, *behind]) == (3 if main is check.main else 64)
    assert len(capsys.readouterr().err) < 1000


@pytest.mark.parametrize(("main", "options"), [
    (check.main, [*BOTH, "--json", "--watch", "--prometheus", "--no-probe", "--timeout", "--strict", "--acl",
                  "REDLOCK_MASTERS"]),
    (run.main, [*BOTH, "--wait", "--no-wait", "--ttl", "--max-hold", "--grace", "--verbose", "--service", "--restart",
               "REDLOCK_FENCE", "75"]),
])  # fmt: skip
def test_help_has_everything(main, options, capsys):
    assert ended(main, ["--help"]) == 0
    text = capsys.readouterr().out
    for option in options:
        assert option in text


@pytest.mark.parametrize(("module", "code"), [("check", 3), ("run", 64)])
def test_as_a_program(module, code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"redlock._cli.{module}", "--nonsense"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert done.stderr.startswith(f"redlock-{module}: ")
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize("main", [check.main, run.main])
def test_what_the_file_says_is_blamed_on_the_file(main, tmp_path, capsys):
    """And not on an option that nobody gave."""
    file = tmp_path / "redlock.toml"
    file.write_text('masters = ["redis://h"]\nmax_ttl = -3\n', encoding="utf-8")
    arguments = ["--config", str(file), *(["job", "--", "true"] if main is run.main else [])]
    assert ended(main, arguments) == (3 if main is check.main else 64)
    errors = capsys.readouterr().err
    assert f"{file}: max_ttl = -3: allowed is" in errors
    assert "grace" not in errors


def test_which_of_several_addresses_is_wrong_is_said(capsys):
    assert ended(check.main, ["redis://10.0.0.1", "redis://:geheim@10.0.0.2:6379/abc", "redis://10.0.0.3"]) == 3
    errors = capsys.readouterr().err
    assert "masters[1] (10.0.0.2:6379): " in errors
    assert "geheim" not in errors
    assert ended(check.main, ["--acl", "redis://10.0.0.1", "redis://:geheim@[10.0.0.2"]) == 3
    errors = capsys.readouterr().err
    assert "masters[1] is no URL of a master" in errors
    assert "geheim" not in errors


def test_service_may_stand_anywhere_in_front_of_the_command():
    """C21."""
    for arguments in (["--service", "job"], ["job", "--service"], ["job", "--ttl", "5", "--service"]):
        given = run.parser().parse_args(arguments)
        assert (given.name, given.service) == ("job", True)
