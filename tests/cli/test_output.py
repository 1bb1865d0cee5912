"""What is printed: the table for people, the metrics for Prometheus, and what has changed."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redlock import Health, MastersList, Probe
from redlock._cli import table
from redlock._cli.prometheus import exposition
from redlock._cli.watch import changes, cut, restarts
from redlock._health.facts import ClockOffset, RefusedCommand
from redlock._health.verdict import judge
from tests.health.facts import CLIENT_OPTIONS, dead, healthy, with_last

TOOK = Probe(ok=True, seconds=0.0123, fence=7)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def mixed() -> Health:
    facts = [
        healthy(0, latency=0.0000312),
        healthy(11, clock=ClockOffset(90.0, 0.001)),
        healthy(2, info={"uptime_in_seconds": "2"}),
    ]
    return judge([*facts, dead(3), dead(4)], CLIENT_OPTIONS, TOOK)


def test_the_table_is_aligned_and_every_master_has_one_line():
    report = table.lines(mixed(), table.Style(io.StringIO()))
    head = next(line for line in report if "MASTER" in line)
    rows = [next(line for line in report if line.startswith(f"  10.0.0.{i}:")) for i in (0, 11, 2, 3, 4)]
    for column in ("VOTES", "SERVER", "PERSISTENCE", "EVICTION"):
        at = head.index(column)
        for row in rows:
            assert row[at - 1] == " " != row[at], (column, row)
    end = head.index("ROUND TRIP") + len("ROUND TRIP")  # figures stand on the right
    assert [row[:end].split("  ")[-1].strip() for row in rows] == ["0.03 ms", "1.0 ms", "1.0 ms", "-", "-"]
    assert all(row[end - 1] != " " == row[end] for row in rows)


def test_the_last_line_does_not_say_the_whole_advice_once_more():
    """It is above, with its finding; this line goes into a short message."""
    young = judge([healthy(number, info={"uptime_in_seconds": "2"}) for number in range(3)], CLIENT_OPTIONS, TOOK)
    assert young.masters[0].findings[0].advice.startswith("wait. If it is new, nothing is wrong")
    assert young.summary.endswith("; next: wait.")


def figures_of(health):
    """As the Monitoring Plugins read the first line: 'label'=value[unit];warn;crit;min;max."""
    first, bar, performance = table.lines(health, table.Style(io.StringIO()))[0].partition(" | ")
    assert bar
    assert "|" not in first + performance
    found = {}
    for one in performance.split(" "):
        read = re.fullmatch(r"([a-z_]+)=([0-9.]+)(s?);([0-9.:]*);([0-9.:]*);([0-9.]*);([0-9.]*)", one)
        assert read, one
        found[read[1]] = read.groups()[1:]
    return found


def test_monitoring_draws_the_figures_behind_the_bar():
    assert figures_of(mixed()) == {
        "voting": ("2", "", "5:", "3:", "0", "5"), "can_lose": ("0", "", "1:", "", "0", "2"),
        "round_trip": ("0.001", "s", "", "", "0", ""), "probe": ("0.0123", "s", "", "", "0", ""),
    }  # fmt: skip
    quick = judge([healthy(i, latency=0.00000012) for i in range(4)], CLIENT_OPTIONS, Probe(ok=True, seconds=1e-7))
    found = figures_of(quick)
    assert found["voting"] == ("4", "", "4:", "3:", "0", "4")
    assert found["can_lose"] == ("1", "", "1:", "", "0", "1")
    assert found["round_trip"][0] == "0"  # no exponent
    assert found["probe"][0] == "0"


def test_what_nobody_measured_has_no_figure():
    assert set(figures_of(judge([dead(i) for i in range(3)], CLIENT_OPTIONS, None))) == {"voting", "can_lose"}
    failed = Probe(ok=False, seconds=0.0, error="not tried | by us")
    assert set(figures_of(judge([dead(0), dead(1), healthy(2)], CLIENT_OPTIONS, failed))) == {
        "voting",
        "can_lose",
        "round_trip",
    }


def test_lists_of_masters_are_said_while_there_is_more_than_one():
    """A change is under way, or somebody has the wrong list (R34)."""
    now = MastersList(("a", "b", "c"), recorded=True, several=True, seen_s=1.5, known_to=("a", "b", "c"))
    more = replace(now, masters=("a", "b", "c", "d"), several=False)
    wrong = replace(now, masters=("c", "d", "e"), recorded=False, several=False, refused=True)

    def said(*lists):
        report = table.lines(replace(mixed(), fleet=lists), table.Style(io.StringIO()))
        return [line for line in report if line.startswith("In use")]

    assert said() == said(now) == []
    assert said(now, more) == [
        "In use: several clients have a, b, c (seen 1.5 s ago).",
        "In use: one client has a, b, c, d (seen 1.5 s ago).",
    ]
    assert said(now, wrong)[1].endswith(
        "c, d, e (seen 1.5 s ago); it is refused, and gets no lock until the others are gone."
    )


def test_a_critical_finding_of_one_master_is_critical_for_that_one_and_not_for_the_heading_above():
    """C22: the status is about the quorum, and WARNING stood above "critical"."""
    report = table.lines(judge([healthy(0), healthy(1), dead(2)], CLIENT_OPTIONS, None), table.Style(io.StringIO()))
    assert report[0].startswith("WARNING: ")
    assert "critical for 10.0.0.2:6379  [unreachable]" in report


def test_colours_are_for_terminals_alone_and_not_where_they_are_unwanted(monkeypatch):
    health = mixed()
    assert "\x1b" not in "\n".join(table.lines(health, table.Style(io.StringIO())))
    assert "\x1b[31mCRITICAL" in "\n".join(table.lines(health, table.Style(Terminal())))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "\n".join(table.lines(health, table.Style(Terminal())))
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in "\n".join(table.lines(health, table.Style(Terminal())))
    assert not table.Style(Terminal()).terminal  # nothing can be redrawn there


def test_on_a_terminal_no_sentence_is_wider_than_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    report = table.lines(mixed(), table.Style(Terminal()))
    plain = [re.sub(r"\x1b\[\d+m", "", line) for line in report]
    start = next(i for i, line in enumerate(plain) if line == "")
    rest = plain[start + 8 :]
    assert max(len(line) for line in rest) <= 90
    # Broken, not cut: every word is still there.
    assert mixed().summary.split() == " ".join(plain[plain.index("") :]).split()[-len(mixed().summary.split()) :]


@pytest.mark.parametrize(("line", "shown"), [
    ("abcdef", "abcde"),
    ("abc", "abc"),
    ("\x1b[31mabc\x1b[0mdef", "\x1b[31mabc\x1b[0mde"),
    ("\x1b[31mabcdef\x1b[0m", "\x1b[31mabcde\x1b[0m"),  # a colour ends all the same
    ("abcdef\x1b[1mg\x1b[0m", "abcde\x1b[1m\x1b[0m"),
])  # fmt: skip
def test_a_line_is_cut_and_its_colours_are_not(line, shown):
    assert cut(line, 5) == shown


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0 s"), (59.4, "59 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (86400, "24 h"),
    (1_000_000, "12 d"),
])  # fmt: skip
def test_durations(seconds, text):
    assert table.duration(seconds) == text


def families(health):
    return {family.name: family for family in text_string_to_metric_families(exposition(health))}


@pytest.mark.parametrize(
    "health",
    [mixed(), judge([dead(0)], CLIENT_OPTIONS, None), judge([healthy(i) for i in range(5)], CLIENT_OPTIONS, TOOK)],
)
def test_the_metrics_are_what_prometheus_reads(health):
    """And as promtool wants them: each has help and type, units are base units, nothing is there twice."""
    found = families(health)
    for name, family in found.items():
        assert name.startswith("redlock_")
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        assert not re.search(r"_(ms|milliseconds|total|count)$", name)
        labels = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(labels) == len(set(labels))
    assert exposition(health).endswith("\n")
    [status] = found["redlock_status"].samples
    assert status.value == {"OK": 0, "WARNING": 1, "CRITICAL": 2}[health.status]


def test_the_figures_are_those_of_the_check():
    found = families(mixed())
    votes = {sample.labels["master"]: sample.value for sample in found["redlock_master_votes"].samples}
    assert votes == {
        "10.0.0.0:6379": 1, "10.0.0.11:6379": 1, "10.0.0.2:6379": 0, "10.0.0.3:6379": 0, "10.0.0.4:6379": 0,
    }  # fmt: skip
    latency = {sample.labels["master"]: sample.value for sample in found["redlock_master_latency_seconds"].samples}
    assert set(latency) == {"10.0.0.0:6379", "10.0.0.11:6379", "10.0.0.2:6379"}  # the others are not known
    assert latency["10.0.0.11:6379"] == pytest.approx(0.001)
    findings = {(sample.labels["master"], sample.labels["code"]) for sample in found["redlock_finding"].samples}
    assert {("", "too-few"), ("10.0.0.3:6379", "unreachable"), ("10.0.0.11:6379", "clock-skew")} <= findings


def test_a_label_may_have_any_character():
    odd = replace(healthy(0), name='a"b\\c\nd')
    [sample] = families(judge([odd], CLIENT_OPTIONS, None))["redlock_master_votes"].samples
    assert sample.labels["master"] == 'a"b\\c\nd'


def test_a_master_goes_and_comes_back():
    good = judge([healthy(i) for i in range(5)], CLIENT_OPTIONS, TOOK)
    bad = judge(with_last(dead(4)), CLIENT_OPTIONS, TOOK)
    gone = dict.fromkeys(text for _, text in changes(good, bad))
    assert list(gone) == [
        "OK -> WARNING: 4 of 5 masters vote",
        "10.0.0.4:6379: does not vote any more",
        "10.0.0.4:6379: unreachable: no connection: Connection refused",
    ]
    back = [text for _, text in changes(bad, good)]
    assert back == [
        "WARNING -> OK: 5 of 5 masters vote",
        "10.0.0.4:6379: votes again",
        "10.0.0.4:6379: unreachable has ended",
    ]


MEMORY = {"maxmemory": "1000", "used_memory": "950"}


@pytest.mark.parametrize(("before", "after", "says"), [
    ({"info": {"maxmemory_policy": "allkeys-lru"}},
     {"info": {"maxmemory_policy": "allkeys-lru", "maxmemory": "100000000"}},
     "evicting: maxmemory-policy is allkeys-lru: it may drop a lock"),
    ({"info": {"maxmemory_policy": "allkeys-lru"}}, {"info": {"maxmemory_policy": "allkeys-lfu"}},
     "evicting: maxmemory-policy is allkeys-lfu"),
    ({"info": MEMORY}, {"info": MEMORY, "write": RefusedCommand("OOM", "OOM command not allowed")},
     "low-memory: its memory is full"),
    ({"failure": "connection", "text": "Connection refused."}, {"failure": "timeout", "text": "no answer within 3 s"},
     "unreachable: it does not answer"),
    ({"latency": 0.2}, {"latency": 0.3}, "slow: its votes come too late"),
])  # fmt: skip
def test_a_finding_that_becomes_another_is_a_change(before, after, says):
    """The same code, and worse news, or other ones."""
    first, then = (judge(with_last(healthy(4, **facts)), CLIENT_OPTIONS, TOOK) for facts in (before, after))
    texts = [text for _, text in changes(first, then)]
    assert any(text.startswith(f"10.0.0.4:6379: {says}") for text in texts)
    assert not any(text.endswith("is over") for text in texts)


@pytest.mark.parametrize(("before", "after"), [
    ({"info": {"uptime_in_seconds": "2"}}, {"info": {"uptime_in_seconds": "3"}}),
    ({"info": MEMORY}, {"info": MEMORY | {"used_memory": "980"}}),
    ({"latency": 0.2}, {"latency": 0.21}),
    ({"clock": ClockOffset(1.0, 0.001)}, {"clock": ClockOffset(1.234, 0.001)}),
    ({"clock": ClockOffset(119.0, 0.001)}, {"clock": ClockOffset(121.0, 0.001)}),  # s, then min
])  # fmt: skip
def test_other_figures_are_no_change(before, after):
    """They differ at every look."""
    first, then = (judge(with_last(healthy(4, **facts)), CLIENT_OPTIONS, TOOK) for facts in (before, after))
    assert first.masters[4].findings
    assert first.masters[4].findings != then.masters[4].findings
    assert list(changes(first, then)) == []


def test_another_process_is_noticed_also_after_it_was_away():
    before = judge([healthy(0)], CLIENT_OPTIONS, TOOK).masters[0]
    after = judge([healthy(0)], CLIENT_OPTIONS, TOOK)
    assert before.run_id
    [(name, text)] = restarts({before.name: before.run_id}, after)
    assert name == before.name
    assert "restarted" in text
    assert list(restarts({}, after)) == []
