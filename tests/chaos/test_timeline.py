"""timeline.html is one file that loads nothing, has all that there is to draw, and takes names as text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from chaos.report import timeline
from chaos.summary import summarize
from tests.chaos.tape import Tape
from tests.chaos.test_verdict import good, overlapping


class Page(HTMLParser):
    def __init__(self, source):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: set[str] = set()
        self.scripts: list[str] = []
        self._open = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids.update(value for name, value in attrs if name == "id" and value)
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data


def page(tape):
    verdict = tape.verdict()
    return timeline(tape.history(), verdict, summarize(tape.history(), verdict))


def data(tape):
    found: dict[str, Any] = json.loads(Page(page(tape)).scripts[0])
    return found


def test_it_loads_nothing():
    source = page(overlapping())
    for tag, attributes in Page(source).tags:
        assert tag not in ("link", "img", "iframe", "object", "base")
        assert not {"src", "href", "srcset", "action"} & attributes.keys()
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(", source)
    assert "default-src 'none'" in source


def test_the_script_finds_what_it_looks_for():
    found = Page(page(good()))
    wanted = set(re.findall(r'\$\("(\w+)"\)', found.scripts[1]))
    assert len(wanted) > 10
    assert wanted <= found.ids
    assert not re.search(r"\{\{ \w+ \}\}", page(good()))


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "<!--<script>", "{{ script }}", "\\1\\g<0>", "ü\u2028"]
)
def test_a_name_is_text_whatever_it_is(name):
    tape = Tape(locks=(name,))
    tape.held(1, name, name, until=2, lock=name, fence=1)
    tape.fault(name, name, 3)
    source = page(tape)
    assert len(Page(source).scripts) == 2
    found = json.loads(Page(source).scripts[0])
    assert found["locks"] == [name]
    assert [name, "client"] in found["lanes"]


def test_a_lane_for_each_client_and_each_master():
    """In the order of their numbers, those too that nothing happened to."""
    tape = good()
    tape.header["clients"] = ["client-10", "client-2"]
    tape.fault("kill", "master-3", 3, 4)
    tape.fault("cut", ["client-2", "master-1", "somewhere"], 3, 4)
    assert [name for name, _ in data(tape)["lanes"]] == [
        "client-1", "client-2", "client-10", "master-1", "master-2", "master-3", "master-4", "master-5", "somewhere",
        "nemesis", "observer",
    ]  # fmt: skip


def test_from_when_a_hold_is_shared():
    """R33: a reader's from the beginning, a writer's from its downgrade on."""
    tape = Tape()
    tape.held(1, "client-1", "A", until=11, mode="shared")
    tape.held(1, "client-2", "B", until=11, mode="shared")
    tape.held(12, "client-1", "C", until=20)
    tape.event(14, "client-1", "downgrade", "invoke", lock="a", token="C")
    assert [hold[-1] for hold in data(tape)["holds"]] == [0, 0, 13]


@pytest.mark.parametrize(("target", "last"), [("master-0", "master-4"), ("master-5", "master-5")])
def test_masters_may_be_counted_from_0_or_from_1(target, last):
    tape = good()
    tape.fault("kill", target, 3)
    assert [name for name, kind in data(tape)["lanes"] if kind == "master"][-1] == last
    assert len([1 for _, kind in data(tape)["lanes"] if kind == "master"]) == 5


def test_what_is_drawn():
    tape = overlapping()
    tape.fault("stop", ["client-1", "master-2"], 5, 6)
    tape.fault("kill", "master-1", 7)
    tape.used(8, "client-1", "B", fence=2, store="fenced")
    tape.used(9, "client-2", "C", fence=2, store="fenced", accepted=False)
    tape.lost(13, "client-1", "B")
    tape.event(12, "client-2", "acquire", "fail", lock="a")
    tape.inspect(14, ("C", 5), master="master-1")
    found = data(tape)
    lanes = [name for name, _ in found["lanes"]]
    assert [[lanes[hold[0]], *hold[1:3], *hold[4:6], *hold[8:]] for hold in found["holds"]] == [
        ["client-1", 0, 1, "A", 1, "released", None],
        ["client-1", 2, 12, "B", 2, "lost", None],
        ["client-2", 3, 13, "C", 3, "ran out", None],
    ]
    assert [[lanes[fault[0]], *fault[1:4]] for fault in found["faults"]] == [
        ["client-1", 4, 5, "stop"],
        ["master-2", 4, 5, "stop"],
        ["master-1", 6, None, "kill"],
    ]
    assert [[lanes[mark[0]], *mark[1:3]] for mark in found["marks"]] == [
        ["client-1", 7, "use"], ["client-2", 8, "rejected"], ["client-2", 11, "refused"], ["client-1", 12, "lost"],
        ["master-1", 13, "inspect"],
    ]  # fmt: skip
    [exclusive] = [ruling for ruling in found["rulings"] if ruling["name"] == "exclusive"]
    [violation] = exclusive["violations"]
    assert violation["at"] == 3
    assert [[line, t, lanes[lane]] for line, t, lane, _ in violation["events"]] == [
        [4, 2, "client-1"],
        [5, 3, "client-2"],
    ]


def test_an_empty_history_is_a_page_as_well():
    assert data(Tape())["outcome"] == "unknown"
