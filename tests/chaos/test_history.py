"""The format: what is read, what is refused and why (C31), and how it is written and merged."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from chaos import history as format_
from chaos.history import MUST, Header, Key, Unreadable, Vote, Writer, merge, parse, read
from chaos.judge import judge
from tests.chaos.tape import PROPERTY, Tape, told
from tests.owners import proves

pytestmark = proves("C31")

HEADER = Header(masters=5, locks=("a",), clients=("client-1",), ttl=2.0, must=("exclusive",), seed=7)


def event(**changes):
    values: dict[str, Any] = {"t": 1.5, "process": "client-1", "op": "acquire", "phase": "invoke", "lock": "a"}
    values.update(changes)
    return json.dumps({name: value for name, value in values.items() if value != "left out"}).encode()


def file(*lines, header=None):
    first = json.dumps({**HEADER.as_dict(), **(header or {})}).encode()
    return b"".join(line + b"\n" for line in (first, *lines))


def test_every_field():
    found = parse(
        file(
            event(
                op="use", phase="ok", token="A", fence=7, store="fenced", accepted=True, detail={"read": 3}, worker="w"
            ),
            event(t=2, process="nemesis", op="halves", target=["client-1", "master-2"]),
            event(t=3, process="nemesis", op="kill", target="master-1"),
            event(
                t=4, process="observer", op="inspect", phase="ok",
                keys=[{"lock": "a", "token": "A", "pttl_ms": 12}, {"lock": "a", "token": "B", "pttl_ms": None}],
            ),
            event(t=5, op="lost", phase="info", token="A", reason="taken", valid_until=9.25),
        )
    )  # fmt: skip
    assert found.header == HEADER
    use, halves, kill, inspect, lost = found.events
    assert (use.token, use.fence, use.store, use.accepted, use.detail, use.worker) == (
        "A", 7, "fenced", True, {"read": 3}, "w",
    )  # fmt: skip
    assert (use.line, lost.line) == (2, 6)
    assert halves.target == ("client-1", "master-2")
    assert kill.target == ("master-1",)
    assert inspect.keys == (Key("a", "A", 12), Key("a", "B", None))
    assert (lost.reason, lost.valid_until) == ("taken", 9.25)
    assert (use.by_client, halves.by_client, inspect.by_client) == (True, False, False)
    assert (found.begin, found.end) == (1.5, 5)


def test_lines_may_be_in_any_order():
    """C31.  Events of one time stay in the order of the file."""
    found = parse(file(event(t=3), event(t=1), event(t=2, op="x"), event(t=2, op="y")))
    assert [(one.t, one.line) for one in found.events] == [(1, 3), (2, 4), (2, 5), (3, 2)]


def test_of_a_header_the_judge_needs_locks_ttl_and_must():
    first = b'{"schema": 1, "locks": ["a"], "ttl": 2, "must": []}\n'
    assert parse(first).header == Header(locks=("a",), ttl=2.0, must=())
    for name in (b"locks", b"ttl", b"must"):
        with pytest.raises(Unreadable, match=f"'{name.decode()}' is missing"):
            parse(first.replace(name, b"other"))


def test_what_is_not_known_is_not_minded():
    assert parse(file(event(op="ponder", more=1), header={"scenario": "kill"})).events[0].op == "ponder"


@pytest.mark.parametrize(("data", "says"), [
    pytest.param(b"", "is empty", id="empty"),
    pytest.param(file(event())[:-1], "line 2: has no newline", id="no-newline"),
    pytest.param(file(event())[:-9], "line 2: has no newline", id="cut-in-the-middle"),
    pytest.param(file(event()[:-9]), "line 2: is not JSON", id="cut-and-a-newline"),
    pytest.param(file(event(), b"{nonsense", event()), "line 3: is not JSON", id="nonsense-in-the-middle"),
    pytest.param(file(event(), b""), "line 3: is not JSON", id="empty-line"),
    pytest.param(file(event().replace(b"client", b"\xff\xfe")), "line 2: is not JSON", id="not-utf-8"),
    pytest.param(file(b"[1]"), "line 2: is list", id="a-list"),
    pytest.param(event() + b"\n", "line 1: schema is None", id="no-header"),
    pytest.param(file(header={"schema": 2}), "line 1: schema is 2, only 1", id="schema-2"),
    pytest.param(file(header={"schema": "1"}), "line 1: schema is '1'", id="schema-text"),
    pytest.param(file(header={"schema": True}), "line 1: schema is True", id="schema-true"),
    pytest.param(file(header={"ttl": 0}), "'ttl' is 0, it must be more than 0", id="no-ttl"),
    pytest.param(file(header={"ttl": None}), "'ttl' is missing", id="ttl-missing"),
    pytest.param(file(header={"locks": "a"}), "'locks' is 'a', it must be a list of strings", id="locks"),
    pytest.param(file(header={"masters": 2.5}), "'masters' is 2.5, it must be a whole number", id="masters"),
    pytest.param(file(header={"seed": [1]}), "'seed' is [1]", id="seed"),
    pytest.param(file(header={"must": ["exclusive", "fast"]}), "'fast' is nothing that can be demanded", id="must"),
    pytest.param(file(event(t="1")), "line 2: 't' is '1', it must be a number", id="t-text"),
    pytest.param(file(event(t=True)), "'t' is True", id="t-true"),
    pytest.param(file(event(t="left out")), "'t' is missing", id="t-missing"),
    pytest.param(file(event(t=float("nan"))), "NaN is no number", id="t-nan"),
    pytest.param(file(event(valid_until=float("inf"))), "Infinity is no number", id="infinite"),
    pytest.param(file(event(t=1).replace(b'"t": 1', b'"t": 1e999')), "'t' is inf, it must be a finite", id="too-great"),
    pytest.param(file(event(t=10**400)), "it must be a finite number", id="much-too-great"),
    pytest.param(file(event(phase="done")), "'phase' is 'done', it must be one of invoke, ok, fail, info", id="phase"),
    pytest.param(file(event(fence=1.5)), "'fence' is 1.5, it must be a whole number", id="fence"),
    pytest.param(file(event(store="red")), "'store' is 'red', it must be one of fenced, plain", id="store"),
    pytest.param(file(event(accepted=1)), "'accepted' is 1, it must be true or false", id="accepted"),
    pytest.param(file(event(op="inspect", phase="ok", process="observer", keys=["a"])), "'keys' is ['a']", id="keys"),
    pytest.param(file(event(keys=[{"lock": "a"}])), "'token' is missing", id="key-token"),
    pytest.param(file(event(phase="ok", token="A")), "acquire ok without 'valid_until'", id="acquire"),
    pytest.param(file(event(phase="ok", valid_until=3)), "acquire ok without 'token'", id="acquire-token"),
    pytest.param(file(event(phase="ok", token="A", valid_until=3, lock=None)), "acquire ok without 'lock'",
        id="acquire-lock"),
    pytest.param(file(event(op="resume", phase="ok", token="A")), "resume ok without 'valid_until'", id="resume"),
    pytest.param(file(event(op="release")), "release invoke without 'token'", id="release"),
    pytest.param(file(event(op="lost", phase="info")), "lost info without 'token'", id="lost"),
    pytest.param(file(event(op="use", phase="ok", token="A", store="plain")), "use ok without 'accepted'", id="use"),
    pytest.param(file(event(op="use", phase="ok", token="A", store="fenced", accepted=True)), "without 'fence'",
        id="unfenced"),
])  # fmt: skip
def test_what_is_refused(data, says):
    with pytest.raises(Unreadable, match=re.escape(says)):
        parse(data)


def test_a_fault_may_be_called_as_an_operation_is():
    parse(file(event(process="nemesis", op="release", phase="invoke", target="client-1")))


def test_the_file_is_named(tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(file(event())[:-1])
    with pytest.raises(Unreadable, match=r"broken\.jsonl: line 2"):
        read(broken)
    with pytest.raises(Unreadable, match=r"none\.jsonl: No such file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(Unreadable, match="directory"):
        read(tmp_path)


@PROPERTY
@given(st.integers(0, 600))
def test_no_cut_goes_unnoticed(at):
    """C31: at whatever byte it is cut, at the end of a line, too, it is refused."""
    data = Tape(footer=True).told("1 A held until 11, 2 A releases").bytes()
    if at >= len(data):
        assert not parse(data).perhaps_cut
    else:
        with pytest.raises(Unreadable):
            parse(data[:at])


def test_a_history_from_before_there_were_footers_can_be_read_and_is_perhaps_cut():
    tape = told("1 A held until 11, 2 A releases")
    assert not tape.history().perhaps_cut
    for data in (tape.bytes(footer=False), tape.bytes(footer=False).rsplit(b"\n", 2)[0] + b"\n"):
        assert parse(data).perhaps_cut


def test_a_history_of_the_version_before_there_were_votes_is_judged_as_ever():
    found = read(Path(__file__).with_name("histories") / "before_votes.jsonl")
    assert {judge(found)[name].outcome for name in MUST} == {"passed"}
    assert not any(event.votes for event in found.events)


def test_votes():
    told = [["master-1", "granted", 0.25], ["master-2", "pending"], ["master-3", "error", None, "gone"]]
    [found] = parse(file(event(op="attempt", phase="fail", votes=told, settled=told[:1], after=2))).events
    assert found.votes == (
        Vote("master-1", "granted", 0.25),
        Vote("master-2", "pending"),
        Vote("master-3", "error", None, "gone"),
    )
    assert (found.settled, found.after) == (found.votes[:1], 2.0)
    for wrong in ("granted", [["m"]], [["m", "granted", "soon"]], [["m", "granted", 1, 2]], [[1, "granted"]]):
        with pytest.raises(Unreadable, match=r"line 2: .* vote"):
            parse(file(event(votes=wrong)))


@pytest.mark.parametrize(("data", "says"), [
    (file(event(), b'{"events": 2}'), "line 3: the footer says that 2 events were written, and 1 are there"),
    (file(event(), event(), b'{"events": 1}'), "line 4: the footer says that 1 events were written, and 2 are there"),
    (file(event(), b'{"events": "1"}'), "the footer says that '1' events"),
    (file(event(), b'{"events": null}'), "the footer says that None events"),
    (file(b'{"events": 0}', event()), "line 3: stands behind the footer"),
    (file(b'{"events": 0}', b'{"events": 0}'), "line 3: stands behind the footer"),
    (file(event(), header={"footer": True}), "line 2: is the last one, and the header promises a footer"),
    (file(header={"footer": True}), "line 1: is the last one, and the header promises a footer"),
    (file(header={"footer": 1}), "'footer' is 1, it must be true or false"),
])  # fmt: skip
def test_a_footer_that_does_not_fit(data, says):
    with pytest.raises(Unreadable, match=re.escape(says)):
        parse(data)


@PROPERTY
@given(st.binary(max_size=60))
def test_whatever_the_bytes_it_is_read_or_refused(garbage):
    for data in (garbage, file() + garbage, file(garbage)):
        try:
            parse(data)
        except Unreadable:
            pass


# -- writing -------------------------------------------------------------------------------------------------


def test_what_is_written_is_what_is_read(tmp_path):
    part, out = tmp_path / "part", tmp_path / "history.jsonl"
    before = format_.now()
    with Writer(part, "client-1") as writer:
        writer.write("acquire", "invoke", lock="a")
        writer.write(
            "acquire", "ok", lock="a", token="ü\n", fence=1 << 60, valid_until=9.5, reason=None, t=before + 1e6
        )
    merge([part], HEADER, out)
    found = read(out)
    assert found.header == HEADER
    assert before <= found.events[0].t <= format_.now()
    assert found.events[1].t == before + 1e6
    assert (found.events[1].token, found.events[1].fence) == ("ü\n", 1 << 60)
    assert b"reason" not in out.read_bytes()


def test_what_has_no_place_in_json(tmp_path):
    with Writer(tmp_path / "part", "client-1") as writer:
        with pytest.raises(ValueError, match="JSON"):
            writer.write("extend", "ok", valid_until=float("nan"))
        with pytest.raises(TypeError):
            writer.write("extend", "ok", detail=object())
    assert (tmp_path / "part").read_bytes() == b""


def test_threads_and_two_writers_of_one_file_write_whole_lines(tmp_path):
    """Two writers: of a process that forked, or one that was started again."""
    with Writer(tmp_path / "part", "client-1") as one, Writer(tmp_path / "part", "client-1") as two:

        def write(number):
            for _ in range(200):
                (one, two)[number % 2].write("look", "ok", detail="x" * 500, worker=str(number))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(write, range(4)))
    merge([tmp_path / "part"], HEADER, tmp_path / "out")
    assert len(read(tmp_path / "out").events) == 800


def test_of_a_process_that_is_killed_there_are_whole_lines(tmp_path):
    program = (
        "import sys; from chaos.history import Writer\n"
        "writer = Writer(sys.argv[1], 'client-1')\n"
        "while True: writer.write('look', 'ok', detail='x' * 300)\n"
    )
    part = tmp_path / "part"
    with subprocess.Popen([sys.executable, "-c", program, str(part)]) as process:
        try:
            while not part.exists() or part.stat().st_size < 100_000:
                assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
    merge([part], HEADER, tmp_path / "out")
    assert len(read(tmp_path / "out").events) > 100


@pytest.mark.parametrize("whole", [0, 1, 3])
def test_half_a_line_of_a_process_that_was_killed_is_left_out(tmp_path, whole):
    """It did nothing after that write, so it was killed before the event; and another one goes on in its file."""
    part = tmp_path / "part"
    with Writer(part, "client-1") as writer:
        for t in range(whole + 1):
            writer.write("look", "ok", t=t)
    part.write_bytes(part.read_bytes()[:-5])
    merge([part], HEADER, tmp_path / "out")
    assert [event.t for event in read(tmp_path / "out").events] == list(range(whole))
    with Writer(part, "client-1") as writer:
        writer.write("look", "ok", t=9)
    merge([part], HEADER, tmp_path / "out")
    assert [event.t for event in read(tmp_path / "out").events] == [*range(whole), 9]


def test_a_disk_that_takes_half_a_line_is_an_error(tmp_path, monkeypatch):
    with Writer(tmp_path / "part", "client-1") as writer:
        monkeypatch.setattr(os, "write", lambda _, data: len(data) - 1)
        with pytest.raises(OSError, match="bytes of an event were written"):
            writer.write("look", "ok")


def test_merged_in_the_order_of_time(tmp_path):
    for process, times in {"client-1": (1, 4), "client-2": (3, 2), "nemesis": (2.5,), "client-3": ()}.items():
        with Writer(tmp_path / process, process) as writer:
            for t in times:
                writer.write("look", "ok", t=t)
    out = tmp_path / "history.jsonl"
    merge(sorted(tmp_path.iterdir()), {**HEADER.as_dict(), "scenario": "kill"}, out)
    assert [one.line for one in read(out).events] == [2, 3, 4, 5, 6]
    assert [one.t for one in read(out).events] == [1, 2, 2.5, 3, 4]
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert lines[0]["scenario"] == "kill"
    assert lines[0]["footer"] is True
    assert lines[-1] == {"events": 5}
    assert not read(out).perhaps_cut


@pytest.mark.parametrize("bad", [b'{"t": 1\n', b'{"t": 1}\n'])
def test_a_part_with_a_bad_line_makes_no_history(tmp_path, bad):
    (tmp_path / "part").write_bytes(bad)
    with pytest.raises(Unreadable, match="part: line 1"):
        merge([tmp_path / "part"], HEADER, tmp_path / "history.jsonl")
    with pytest.raises(Unreadable, match="missing: No such file"):
        merge([tmp_path / "missing"], HEADER, tmp_path / "history.jsonl")
    with pytest.raises(Unreadable, match="schema"):
        merge([], {"schema": 3}, tmp_path / "history.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_nothing_is_left_of_a_merge_that_fails(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(OSError):
        merge([], HEADER, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
