"""The reference has everything that is public, and the tables of the pages are complete."""

from __future__ import annotations

import inspect
import re
import typing

import prometheus_client
import pytest

import redlock
from redlock import errors, fenced, observe, scripts, testing
from redlock._cli import prometheus as check_metrics
from redlock.observe import _measures
from redlock.observe.prometheus import PrometheusObserver
from tests.docs.pages import DOCS, blocks

REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))


def described():
    return set(
        re.findall(
            r"^\.\. (?:auto\w+|py:data):: (?:redlock\.)?(?:testing\.|(?:observe|adapters|compat|fenced)\.(?:\w+\.)?)?(\w+)(?:\(\))?$",
            REFERENCE,
            re.MULTILINE,
        )
    )


@pytest.mark.parametrize("module", [redlock, testing, observe, fenced], ids=lambda module: module.__name__)
def test_all_that_is_public_is_described(module):
    assert set(module.__all__) <= described()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("reference/errors.md", [name for name in redlock.__all__ if isinstance(getattr(redlock, name), type)
                                 and issubclass(getattr(redlock, name), redlock.RedlockError) and name != "RedlockError"]),
        ("reference/errors.md", [word for word in typing.get_args(errors.Outcome) if word != "free"]),
        ("reference/events.md", [event.__name__ for event in typing.get_args(redlock.Event)]),
        ("reference/wire.md", sorted({script.name.removesuffix("_recorded") for script in scripts.ALL})),
    ],
    ids=["errors", "outcomes", "events", "scripts"],
)  # fmt: skip
def test_tables_are_complete(page, words):
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert words
    for word in words:
        assert any(re.search(rf"`(?:error: )?{word}\b", row) for row in rows), word


def test_every_metric_is_described_and_no_other_is_alerted_on():
    rows = re.findall(r"^\| .*$", (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    described = set(re.findall(r"`([a-z_.]+)(?:\{[a-z,]+\})?`", "".join(rows)))
    measures = (*_measures.HISTOGRAMS, *_measures.COUNTERS)
    assert {one.name for one in measures} <= described
    registry = prometheus_client.CollectorRegistry()
    PrometheusObserver(registry)
    known = {f"{family.name}{'_total' * (family.type == 'counter')}" for family in registry.collect()}
    assert known == {name for name in described if name.startswith("redlock_")}

    (rules,) = (text for language, text in blocks(DOCS / "howto" / "monitoring.md") if "groups:" in text)
    alerted = {re.sub(r"_count$", "", name) for name in re.findall(r"\bredlock_[a-z_]+", rules)}
    check = {f"redlock_{name}" for name in re.findall(r'yield "([a-z_]+)"', inspect.getsource(check_metrics))}
    assert alerted & known
    assert alerted <= known | check


def test_every_option_is_in_the_table_of_times():
    """Those that are seconds, or a share of them; with the defaults that they have."""
    table = (DOCS / "howto" / "times.md").read_text(encoding="utf-8")
    options = {**inspect.signature(redlock.Masters).parameters, **inspect.signature(redlock.MultiLock).parameters}
    seconds = {name: option.default for name, option in options.items() if isinstance(option.default, float)}
    assert {"ttl", "node_timeout", "fence_ttl"} <= set(seconds)
    for name, default in seconds.items():
        shown = "for ever" if default < 0 else f"{default:g}"
        assert re.search(rf"^\| `{name}` \| {re.escape(shown)} \|", table, re.MULTILINE), (name, default)


OBJECTS = {"masters": redlock.Masters, "lease": redlock.Lease, "term": redlock.Term, "election": redlock.Election}


def unknown(text):
    """What ``text`` has after a dot that its object has not: in a sentence no example finds that."""
    named = re.findall(rf"(?<!/)\b({'|'.join(OBJECTS)})\.([a-z]\w*)(?=[`(])", text)
    return [f"{owner}.{name}" for owner, name in named if not hasattr(OBJECTS[owner], name)]


def test_what_a_page_names_is_there():
    pages = [DOCS.parent / "README.md", *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
    found = {page.name: unknown(page.read_text(encoding="utf-8")) for page in pages}
    assert {name: names for name, names in found.items() if names} == {}
    assert unknown("`masters.locked(template)` and `lease.fence`, `masters.lock`") == ["masters.locked"]
