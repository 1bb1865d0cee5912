"""Mutants of the library: all operators, the same ones for the same seed; and what becomes of them is seen."""

from __future__ import annotations

import ast
import re

import pytest

from tests.bench.library import ROOT, Patch, text_of
from tools.mutants import killing
from tools.mutants.__main__ import main
from tools.mutants.drawing import Mutant, drawn, files, inside, mutants, patterns

pytestmark = pytest.mark.long

TRUSTED = files(trusted=True)


def mutant(module: str, old: str, new: str) -> Mutant:
    return Mutant("file", "where", 1, "what", Patch(module, old, new))


MINORITY = mutant("redlock._core.kernel.quorum", "return masters // 2 + 1", "return max(1, masters // 2)")
NOT_OWN = mutant("release.lua", "redis.pcall('GET', KEYS[1]) == ARGV[1]", "redis.pcall('GET', KEYS[1])")
NONE = mutant("redlock._core.kernel.quorum", "return masters // 2 + 1", "return 1 + masters // 2")


def test_the_list_names_files_that_are_there():
    assert all(any(ROOT.glob(pattern)) for pattern in patterns())
    assert inside("redlock/_core/kernel/quorum.py")
    assert not inside("redlock/_lock/lock.py")
    assert {*TRUSTED}.isdisjoint(files(trusted=False))


def test_the_page_has_the_list_and_its_lines():
    """With room for some lines more: it says how much there is to read."""
    page = (ROOT / "docs" / "concepts" / "what-to-trust.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^\| `(\S+)` \| ([\d,]+) \|", page, re.MULTILINE))
    assert [*said] == [pattern.removeprefix("redlock/") for pattern in patterns()]
    for pattern in patterns():
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in ROOT.glob(pattern))
        assert lines == pytest.approx(int(said[pattern.removeprefix("redlock/")].replace(",", "")), abs=25)


def test_a_seed_draws_the_same_mutants_again():
    assert drawn(1, 50, TRUSTED) == drawn(1, 50, TRUSTED) != drawn(2, 50, TRUSTED)
    assert len({*drawn(1, 50, TRUSTED)}) == 50


def test_each_is_one_change_that_python_reads():
    every = drawn(1, 100, TRUSTED)
    for one in every:
        text = text_of(one.patch.module)
        assert text.count(one.patch.old) == 1
        assert ast.dump(ast.parse(one.patch.applied(text))) != ast.dump(ast.parse(text)), one


@pytest.mark.parametrize(("old", "new"), [
    ("a < b", "(a <= b)"), ("a < b", "(a >= b)"), ("a is None", "(a is not None)"), ("a in b", "(a not in b)"), ("a and b", "(a or b)"),
    ("a and b", "(a)"), ("a and b", "(b)"), ("not a", "(a)"), ("a + b", "(a - b)"), ("a += b", "a -= b"), ("min(a, b)", "(max(a, b))"),
    ("2", "(3)"), ("2", "(0)"), ("True", "(False)"), ("'word'", "('word!')"), ("return a", "return None"), ("raise a", "pass"),
    ("a = b", "pass"), ("a()", "pass"),
])  # fmt: skip
def test_operators(old, new, tmp_path, monkeypatch):
    monkeypatch.setattr("tools.mutants.drawing.ROOT", tmp_path)
    statement = (
        f"    {old}\n" if " = " in old or old.startswith(("return", "raise", "a()", "a +=")) else f"    x = {old}\n"
    )
    (tmp_path / "one.py").write_text(f'"""Text."""\n\ndef f(a: "word", b) -> None:\n{statement}')
    assert f"`{old}` becomes `{new}`" in [one.what for one in mutants("one.py")]


def test_conditions_are_negated_and_what_only_people_and_type_checkers_read_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.mutants.drawing.ROOT", tmp_path)
    (tmp_path / "one.py").write_text(
        'from typing import TYPE_CHECKING\n"""Text."""\nif TYPE_CHECKING:\n    import a\nx: int = y\nif x:\n    raise E(f"{x} is 2", "it is")\n'
    )
    assert [one.what for one in mutants("one.py")] == [
        "`x` becomes `(not x)`", "`raise E(f'{x} is 2', 'it is')` becomes `pass`",
    ]  # fmt: skip


def test_one_that_is_killed_and_one_that_is_none():
    assert killing._limited(killing._seeds, NONE, 2) is None
    assert killing._limited(killing._seeds, MINORITY, 13).startswith("--family ")
    fate = killing.killed(MINORITY._replace(file="redlock/_core/kernel/quorum.py"), 13)
    assert fate.by.startswith("tests/core/test_quorum.py::")
    assert str(fate) == f"{fate.mutant.name} (line 1): {fate.by}"


def test_what_breaks_a_promise_is_told_apart_from_what_breaks_something_else():
    assert killing.broken(NOT_OWN, 3).by.startswith("P8 foreign: --family ")
    forgotten = mutant("redlock._core.renewals", "def ", "def _")
    assert killing.broken(forgotten, 1).by == ""
    with pytest.raises(LookupError):
        killing.broken(mutant("release.lua", "no such text", ""), 1)
    lives = killing.broken(NONE, 3)
    assert (lives.by, lives.grants > 10) == ("", True)


def test_where_tests_are_red_without_any_change_nothing_is_killed_by_them(monkeypatch, capsys):
    monkeypatch.setattr("tools.mutants.__main__.fails", lambda *_: "FAILED tests/core/one.py")
    assert main(["--inside", "1", "--outside", "0"]) == 2
    assert "red without any change" in capsys.readouterr().err


def _for_ever(*_):
    while True:
        pass


def test_one_that_never_ends_is_killed(monkeypatch):
    monkeypatch.setattr(killing, "LONGEST", 1)
    assert killing._limited(_for_ever) == killing.ENDLESS


@pytest.mark.parametrize("new", ["pass", "while True: pass"])
def test_one_with_which_tests_cannot_even_be_collected_is_killed_by_them(new, monkeypatch):
    monkeypatch.setattr(killing, "LONGEST", 3)
    text = Patch("redlock._core.wire", "    _replace = replace\n", f"    {new}\n")
    unread = Mutant("redlock/_core/wire.py", "Call", 1, "what", text)
    assert killing.killed(unread, 0).by == "tests/core/test_wire.py"
