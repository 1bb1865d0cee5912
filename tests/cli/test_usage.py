"""What is wrong with the arguments of both commands: the exit code, one line that says what to do, no traceback."""

from __future__ import annotations

import errno

import pytest

from redlock._cli import check, run
from redlock._cli.job import NotStarted
from tests.owners import proves

pytestmark = proves("C21")


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
    *[(["--timeout", wrong, "redis://h"], "more than 0") for wrong in ("0", "nan")],
    (["--timeout", "1e308", "redis://h"], "'1e308': allowed is a number of seconds, more than 0 and at most 1e+09"),
    (["--timeout", "4e9", "redis://h"], "at most 1e+09"),
    (["--watch=1e12", "redis://h"], "at most 1e+09"),
    (["--held", "--watch", "redis://h"], "--held needs the table"),
    (["--held", "--prometheus", "redis://h"], "--held needs the table"),
    (["--limit", "3", "redis://h"], "--limit needs --held"),
    *[(["--held", "--limit", wrong, "redis://h"], f"'{wrong}': allowed is") for wrong in ("0", "x")],
    (["--held=", "redis://h"], "match=''"),
    (["--config", "redis://u:geheim@h"], "redis://***@h: No such file"),
    (["--max-ttl", "0.1", "redis://h"], "node_timeout"),
    (["--watch", "--prometheus", "redis://h"], "--watch needs"),
    (["--json", "--prometheus", "redis://h"], "not allowed with"),
    (["--nonsense=redis://:geheim@h"], "unrecognized arguments: --nonsense=redis://***@h"),
    (["--watch", "redis://:geheim@"], "names no host"),
    *[(["--watch", wrong, "redis://h"], f"argument --watch: '{wrong}': allowed is") for wrong in ("0", "nan", "-1", "2s", "5m")],
    (["--plan", "redis://i", "--json", "redis://h"], "--plan takes no other options"),
    *[(["--plan", empty, "redis://:geheim@h"], "--plan is empty: check the variable") for empty in ("", " , ")],
    (["--plan", "b=redis://i", "redis://:geheim@h"], "one list has names and the other has none"),
    (["--plan", "a=redis://:geheim@i", "a=redis://:geheim@h"], "a has another address in the new list"),
    *[([*acl, "--config", "/does/not/exist"], "No such file") for acl in ([], ["--acl"])],
    *[(["--config", "", rest], "--config is empty: check the variable") for rest in ("redis://:geheim@h", "--acl")],
    (["--prefix", "a\0b", "redis://h"], "NUL"),
    *[(["--prefix", "caf\udce9", rest], "UTF-8") for rest in ("redis://h", "--acl")],  # else a rule for other keys
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
    *[
        (["job", *words.split(), "--", "true"], "not allowed with")
        for words in ("--wait 3 --no-wait", "--wait 3 --outage-timeout 3", "--quiet --verbose")
    ],
    (["job", "--outage-timeout", "0", "--", "true"], "'0': allowed is a number of seconds, more than 0 and at most 1e+09, or inf"),
    (["--service", "job", *HOST, "--outage-timeout", "inf", "--", "true"], "--outage-timeout cannot be used with --service"),
    (["job", "--wait", "-1", "--", "true"], "0 or more"),
    (["job", *HOST, "--ttl", "0", "--", "true"], "more than 0"),
    (["job", *HOST, "--ttl", "61", "--", "true"], "max_ttl"),
    (["job", *HOST, "--ttl", "0.5", "--", "true"], "node_timeout"),
    (["job", *HOST, "--ttl", "9", "--grace", "5", "--", "true"], "at most half of the TTL"),
    (["job", *HOST, "--max-hold", "0", "--", "true"], "'0': allowed is a number of seconds, more than 0"),
    (["", *HOST, "--", "true"], "1 to 512"),
    (["job", "--masters", "redis://:geheim@h:x", "--", "true"], "is no URL of a master"),
    (["job", "--config", "/does/not/exist", "--", "true"], "No such file"),
    (["job", *HOST, "--config", "", "--", "true"], "--config is empty: check the variable"),
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
    *[
        (["--service", "job", *HOST, *words, "--", "true"], f"{words[0]} cannot be used with --service")
        for words in map(str.split, ("--wait 3", "--no-wait", "--quiet", "--hold-at-least 3", "--slots 2", "--shared"))
    ],
    (["--service", "job", *HOST, "--restart", "often", "--", "true"], "'often' (choose from"),
    (["--service", "job", *HOST, "--grace", "8", "--", "true"], "at most half of the TTL (7.5 s)"),
    (["job", *HOST, "--slots", "0", "--", "true"], "limit=0: allowed is"),
    (["job", *HOST, "--shared", "--hold-at-least", "1", "--", "true"], "--shared"),
    (["job", *HOST, "--hold-at-least", "20", "--ttl", "10", "--", "true"], "--hold-at-least 20: allowed is at most --ttl, 10 s"),
    (["job", *HOST, "--hold-at-least", "100", "--", "true"], "--hold-at-least 100: allowed is at most max_ttl, 60 s"),
    (["job", *HOST, "--hold-at-least", "-1", "--", "true"], "--hold-at-least: '-1': allowed is a number of seconds, 0 or more"),
    (["--service", "--", "true"], "NAME"),
    (["--service", "job", *HOST, "--fair", "--", "true"], "--fair cannot be used with --service: any candidate may be the next leader"),
    (["job", *HOST, "--fair", "--shared", "--", "true"], "--fair cannot be used with --shared: readers enter together"),
    (["job", *HOST, "--fair", "--slots", "2", "--", "true"], "--fair cannot be used with --slots: a waiter takes any free slot"),
    (["job", *HOST, "--restart", "always", "--", "true"], "--restart needs --service"),
    (["job", *HOST, "--status-port", "0", "--", "true"], "--status-port needs --service"),
    (["--service", "job", *HOST, "--status-port", "70000", "--", "true"], "'70000': allowed is a port, 0 to 65535"),
    (["--service", "job", *HOST, "--status-port", "a b:80", "--", "true"], "or HOST:PORT such as"),
    (["--service", "job", *HOST, "--status-port", "192.0.2.1:80", "--", "true"], "cannot listen there (Cannot assign"),
    (["--service", "job", *HOST, "--status-port", "nohost.invalid:80", "--", "true"], "): give an address of this machine, 0.0.0.0 for all of them"),
])  # fmt: skip
def test_redlock_run(arguments, says, capsys):
    assert ended(run.main, arguments) == 64
    output, errors = capsys.readouterr()
    assert says in errors
    assert "Unknown error" not in errors
    assert "geheim" not in errors
    assert output == ""


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


def test_service_may_stand_anywhere_in_front_of_the_command():
    """C21."""
    for arguments in (["--service", "job"], ["job", "--service"], ["job", "--ttl", "5", "--service"]):
        given = run.parser().parse_args(arguments)
        assert (given.name, given.service) == ("job", True)


@proves("C24")
@pytest.mark.parametrize(("error", "code"), [(errno.ENOENT, 127), (errno.EACCES, 126), (errno.ENOEXEC, 126)])
def test_a_command_that_cannot_be_started_has_the_exit_code_of_shells(error, code):
    """C24."""
    assert NotStarted("job", error).code == code
