"""Every class has a word for it: on a page of the reference if it is public, else a row under "Inside" in the glossary.

The names inside are for people who read the code.  A row says in which file the class is, so that it goes when the class does.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re

import django.conf

import redlock
from tests.docs.pages import DOCS, ROOT
from tests.docs.test_reference import described

GLOSSARY = DOCS / "reference" / "glossary.md"
_ROW = re.compile(r"^\| `(\w+)` \| (`[^|]*`) \| (\S[^|]*) \|$")
_HEAD = ("| Class | In | What it is |", "|---|---|---|")


@functools.cache
def classes() -> set[tuple[str, str]]:
    """Name and file of each, but for exceptions, what begins with an underscore, and the servers for tests."""
    django.conf.settings.configure(INSTALLED_APPS=["redlock.fenced.django"])  # a model belongs to an application
    django.setup()
    found = set()
    for module in pkgutil.walk_packages(redlock.__path__, "redlock."):
        if module.name.startswith("redlock.testing"):
            continue
        here = importlib.import_module(module.name)
        for name, one in inspect.getmembers(here, inspect.isclass):
            if one.__module__ == module.name and not name.startswith("_") and not issubclass(one, BaseException):
                file = inspect.getsourcefile(here) or ""
                found.add((name, file.removeprefix(f"{ROOT}/redlock/")))
    return found


def rows(page: str) -> list[tuple[str, str]]:
    """What the glossary says of the names inside: name and file, once for each file."""
    inside = page.partition("\n## Inside\n")[2].splitlines()
    found = []
    for line in (line for line in inside if line.startswith("|") and line not in _HEAD):
        row = _ROW.match(line)
        assert row is not None, line
        found += [(row[1], file) for file in re.findall(r"`([^`]+)`", row[2])]
    return found


def wrong(page: str) -> list[str]:
    told = rows(page)
    there = classes()
    missing = {(name, file) for name, file in there if name not in described()} - set(told)
    gone = set(told) - there
    return sorted(
        [f"{name} in {file} has no row" for name, file in missing]
        + [f"there is no {name} in {file}" for name, file in gone]
        + [f"{name} has two rows" for name, file in {row for row in told if told.count(row) > 1}]
    )


def test_every_class_has_a_row_and_every_row_a_class():
    assert wrong(GLOSSARY.read_text(encoding="utf-8")) == []


def test_the_rows_are_in_the_order_of_the_alphabet():
    names = [name for name, _ in rows(GLOSSARY.read_text(encoding="utf-8"))]
    assert names == sorted(names, key=str.lower)


def test_one_that_is_missing_and_one_that_is_gone_are_noticed():
    page = GLOSSARY.read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| `Ballot` .*\n", page, re.MULTILINE)
    assert wrong(page.replace(line, "")) == ["Ballot in _core/ballots.py has no row"]
    assert wrong(page + line.replace("Ballot", "Ballots")) == ["there is no Ballots in _core/ballots.py"]
    assert wrong(page + line) == ["Ballot has two rows"]


def test_classes_of_every_kind_are_looked_at():
    assert {
        ("Round", "_core/rounds.py"),
        ("Inbox", "_core/protocols.py"),
        ("MultiLock", "_lock/lock_threads.py"),
    } <= classes()
    assert not {name for name, _ in classes()} & {"LockLost", "Reader", "LocalMasters"}
