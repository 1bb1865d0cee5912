"""Man pages and completion say what ``--help`` says: no option is missing, none is left over."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.packaging.test_wheel import in_wheel
from tests.servers.needs import missing
from tools.share import HERE, PLACES, actions, files, parsers

COMMANDS = sorted(parsers())
OPTION = r"(?<![\w-])--[a-z][a-z-]+"


def options(name):
    return {one for action in actions(parsers()[name]) for one in action.option_strings if one.startswith("--")}


def read(place):
    return (HERE / place).read_text(encoding="utf-8")


def bare(text):
    """Without what troff, shells and line ends add."""
    return re.sub(r"[\W_]+", "", text)


def test_every_command_is_there():
    assert COMMANDS == ["redlock-chaos", "redlock-check", "redlock-run"]
    kept = {str(file.relative_to(HERE)) for file in HERE.rglob("*") if file.is_file()}
    assert kept == {*files(), "README.md"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_man_page_has_the_text_of_help(name):
    parser = parsers()[name]
    page = read(f"man/man1/{name}.1")
    plain = bare(re.sub(r"\\f[BIR]", "", page.replace("\\-", "-")))
    for action in actions(parser):
        if "--help" not in action.option_strings:  # a man page is one
            for part in (*action.option_strings, action.help or ""):
                assert bare(part) in plain, part
    assert bare(parser.epilog or "") in plain, "the examples and exit codes"
    for one in set(re.findall(OPTION, page.replace("\\-", "-"))) - {"--help"}:
        assert one in parser.format_help() or one in options(name), one


@pytest.mark.parametrize("shell", PLACES)
@pytest.mark.parametrize("name", COMMANDS)
def test_completion_knows_every_option_and_no_other(name, shell):
    text = read(PLACES[shell].format(name))
    text = re.sub(r"-l ([a-z-]+)", r"--\1", text)  # as fish writes it
    known = options(name)
    assert known <= set(re.findall(OPTION, text))
    offered = {
        "bash": r"_option_strings=\((.*)\)", "zsh": r"^ +['\"{(].*?(--[a-z-]+)", "fish": r"^complete .* (--[a-z-]+)",
    }[shell]  # fmt: skip
    found = {one for match in re.findall(offered, text, re.MULTILINE) for one in re.findall(OPTION, match)}
    assert found
    assert not found - known, "make share"


def test_bash_completes():
    done = subprocess.run(
        ["bash", "-c", (f"source {HERE / PLACES['bash'].format('redlock-run')}\n"
         "COMP_WORDS=(redlock-run --restart o) COMP_CWORD=2\n_shtab_redlock_run\necho ${COMPREPLY[@]}\n"
         "COMP_WORDS=(redlock-run --no-w) COMP_CWORD=1\n_shtab_redlock_run\necho ${COMPREPLY[@]}")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["on-failure", "--no-wait"], done.stderr


def test_fish_completes():
    if shutil.which("fish") is None:
        missing("fish")
    script = f"source {HERE / PLACES['fish'].format('redlock-chaos')}; complete -C 'redlock-chaos run --no-'"
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=False)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["--no-restart-guard"], done.stderr


def test_zsh_reads_it():
    if shutil.which("zsh") is None:
        missing("zsh")
    for name in COMMANDS:
        done = subprocess.run(["zsh", "-n", str(HERE / PLACES["zsh"].format(name))], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def test_the_wheel_has_them_where_man_and_shells_look(wheel):
    there = {name.partition(".data/data/")[2] for name in in_wheel(wheel) if ".data/data/" in name}
    assert there == {f"share/{place}" for place in files()}
