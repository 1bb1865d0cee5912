"""Whatever a master answers, whole or cut anywhere: it costs that master its vote or its connection, nothing else (P4).

From the outside in: bytes on a socket, the answers to a handshake, and what they mean to an operation.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections import deque
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import example, given, strategies as st
from redis.exceptions import ResponseError

from redlock import Masters, _connect, scripts
from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.inspect import inspect
from redlock._core.kernel import quorum
from redlock._core.kernel.ballot import Grant, Refusal
from redlock._core.kernel.extension import extend
from redlock._core.kernel.release import release
from redlock._core.lease import LeaseState
from redlock._core.outcomes import ErrorReply
from redlock._core.voters import Facts, Voters
from redlock._io.connections import Connections
from redlock._io.stream import Connection, Subscriber
from redlock._lock.refused import not_acquired
from redlock._system import clock
from tests.core.resp import encoded
from tests.core.world import START, Master, World
from tests.properties.profile import PROPERTY

if TYPE_CHECKING:
    from redlock._core.outcomes import Failure
    from redlock._io.stream import Stream

# -- bytes -------------------------------------------------------------------------------------------

ENDPOINT = _connect.endpoint("redis://10.0.0.1")


class Question(Send):
    """It remembers what it was told, in a list of all."""

    __slots__ = ("told",)

    def __init__(self, number: int, told: list[Any]) -> None:
        super().__init__(wire.release(wire.keys_for("", [f"{number}"]), "t"))
        self.open = True
        self.told = told

    def voted(self, master: int, at: float) -> bool:
        return self.answered(master, [1, 0], at)

    def answered(self, master: int, value: Any, at: float) -> bool:
        self.told.append((self.call, value))
        return True

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        return self.answered(master, failure, at)


@contextlib.contextmanager
def connected(stream):
    """``stream`` on a pair of sockets; the master's end of it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    try:
        stream.open(ours, START)
        stream.put_down()
        yield theirs
    finally:
        stream.close(abort=False)
        theirs.close()


class Wires(Connections):
    """One connection, as the drivers have it: with the hot path in front."""

    def __init__(self) -> None:
        settings = mock.Mock(voters=Voters(["redis-a"], 60.0, restart_guard=False), node_timeout=1.0)
        super().__init__([ENDPOINT], settings, mock.MagicMock())
        self.error: str | None = None  # that broke the connection

    def ask(self, request: Send) -> None:
        self.submit(request, mock.Mock(), START)

    def read_all(self) -> None:
        self.read_ready([(self.all[0].fd, 0)], START + 0.1)

    def detach(self, connection: Stream, error: OSError, now: float) -> None:
        self.error = str(error)
        connection.close(abort=False)


@contextlib.contextmanager
def connected_wires():
    """A connection, and the master's end of it."""
    wires = Wires()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    try:
        wires.attach(wires.all[0], ours, Facts("run", 10**6), START)
        yield wires, theirs
    finally:
        ours.close()
        theirs.close()


def read_by_connection(chunks, questions):
    """What a connection delivers, and how it ended: None, or the error that closes the connection."""
    delivered: list[Any] = []
    with connected_wires() as (wires, master):
        for number in range(questions):
            wires.ask(Question(number, delivered))
        for chunk in chunks:
            master.sendall(chunk)
            wires.read_all()
            if wires.error is not None:
                break
    return delivered, wires.error


def test_what_was_torn_is_neither_read_nor_written():
    told: list[Any] = []
    with connected_wires() as (wires, master):
        wires.ask(Question(0, told))
        wires.all[0].pick_up()  # an interruption keeps it from `put_down`
        master.sendall(USUAL)
        wires.read_all()
        assert wires.error == "interrupted in the middle of a message"
        assert not told


integers = st.integers(-(2**63), 2**63 - 1)
error_replies = st.builds(ErrorReply, st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20))
answers = st.recursive(
    st.one_of(
        integers,
        st.binary(max_size=12),
        st.none(),
        error_replies,
        st.sampled_from([0, 1, 2, -1, b"0", b"77", b""]),
        st.just([1, 0]),  # the usual one
    ),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=8,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


USUAL = encoded([1, 0])


@PROPERTY
@given(st.lists(answers, min_size=1, max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
# A usual answer is not parsed; so the parser must not be in the middle of something else.
@example([[[1, 0]]], [4])  # a part of another answer
@example([USUAL], [5, 17])  # a text that looks like it
@example([[1, 0]] * 3, [21])
@example([7, [1, 0], [1, 0]], [2, 4])
@example([7, [1, 0], [1, 0]], [20])
def test_answers_are_the_same_wherever_they_are_cut(values, places):
    data = b"".join(encoded(value) for value in values)
    whole = read_by_connection([data], len(values))
    assert read_by_connection(cut(data, places), len(values)) == whole
    assert read_by_connection([bytes([byte]) for byte in data[:400]] + [data[400:]], len(values)) == whole
    delivered, error = whole
    # A master that forgot the script is given its text: that answer is not delivered, but asked for again.
    forgot = sum(isinstance(value, ErrorReply) and value.code == "NOSCRIPT" for value in values)
    if error is None:
        assert len(delivered) == len(values) - forgot
        if "ErrorReply" not in repr(values):  # those become failures, and their texts are escaped
            assert [value for _, value in delivered] == values


pieces = st.sampled_from([
    b"*", b"$", b":", b"+", b"-", b"%", b"~", b">", b"(", b",", b"#", b"_", b"!", b"=", b"|", b"\r\n", b"0", b"1", b"-1",
    b"2", b"9" * 20, b"100000", b"t", b"x", b"\xff", b"NOSCRIPT ", b"message",
])  # fmt: skip
garbage = st.one_of(st.binary(max_size=60), st.lists(pieces, max_size=24).map(b"".join))


@PROPERTY
@given(garbage, st.lists(st.integers(0, 100), max_size=4))
@example(b"%1\r\n*0\r\n:1\r\n", [])  # what cannot be the key of a dict
@example(b"(" + b"9" * 5000 + b"\r\n", [])
@example(b"-ERR \xff\r\n", [])
@example(b"*1\r\n" * 12, [])
def test_garbage_breaks_the_connection_at_most(data, places):
    delivered, error = read_by_connection(cut(data, places), 2)
    assert not any(isinstance(value, ErrorReply) for _, value in delivered)  # but a `Failure` that explains it
    if error is not None:
        assert error
    heard: list[tuple[Any, ...]] = []
    asked = Subscriber(0, ENDPOINT, lambda *announcement: heard.append(announcement))
    with connected(asked) as master:
        asked.more(["a"], START)
        with contextlib.suppress(OSError):
            for chunk in cut(data, places):
                master.sendall(chunk)
                asked.read()
    assert all(isinstance(channel, str) and isinstance(token, bytes) for *_, channel, token in heard)


@pytest.mark.parametrize(
    "error", [MemoryError(), SystemError("returned a result with an exception set"), TypeError("x")]
)
def test_what_the_parser_cannot_build_breaks_the_connection_only(error):
    """``*4294967295``, thirteen bytes: it reserves the room at once, and what it raises is no error of a protocol."""

    class Parser:
        def feed(self, data):
            pass

        def gets(self):
            raise error

    connection: Connection = Connection(0, ENDPOINT, 1.0)
    with connected(connection) as master:
        connection._parser = Parser()
        master.sendall(b"*4294967295\r\n")
        with pytest.raises(ConnectionAbortedError, match=r"does not speak the Redis protocol: \w"):
            connection.read()


def test_an_answer_has_the_time_after_it_was_read(monkeypatch):
    """R21, R34: what says "so long left" may have come while the process was stopped, behind its look at the clock."""

    class Dated(Question):
        def answered(self, master, value, at):
            self.told.append(at)
            return False

    told: list[Any] = []
    with connected_wires() as (wires, master):
        wires.ask(Dated(0, told))
        master.sendall(b"*2\r\n:0\r\n$0\r\n\r\n")
        monkeypatch.setattr(clock, "now", lambda: START + 60)
        wires.read_ready([(wires.all[0].fd, 0)], START)
    assert told == [START + 60]


@PROPERTY
@given(st.lists(answers, min_size=1, max_size=3))
def test_an_answer_to_no_question_breaks_the_connection(values):
    delivered, error = read_by_connection([encoded(value) for value in values], 0)
    assert delivered == []
    assert error == "it sent an answer without a request"


@PROPERTY
@given(st.text(max_size=300))
@example("ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -OOM x")
def test_any_error_reply_has_a_meaning(text):
    reply = ErrorReply.read(text)
    failure = reply.failure()
    assert failure.outcome == "error"
    assert len(failure.reason) < 400
    assert failure.reason.isprintable()
    assert isinstance(reply.passing, bool)


def read_back(token: bytes) -> str:
    """A token as it arrives from a master."""
    answer = wire.read_acquire([0, b"1", token, 5])
    assert isinstance(answer, wire.Held)
    return answer.holder


@PROPERTY
@given(st.binary(min_size=1, max_size=20))
@example(b"x\n  redis-z:6379  granted")
@example(b"\x1b[2K\rall is well")
def test_the_token_of_a_stranger_cannot_forge_a_line(token):
    """It stands in the first line of the error."""
    answer = wire.Held(0, read_back(token), 10.0)
    lock = Masters(["redis://10.0.0.1"]).lock("a")
    error = not_acquired(lock._spec, Refusal("held", quorum.Tally(("a:1",)), START, (answer,)))
    first, second = str(error).split("\n")
    assert first.isprintable()
    assert second.startswith("  a:1")


# -- handshakes --------------------------------------------------------------------------------------


class Shaken:
    """Stands for a connection of redis-py whose master answers with what it was given."""

    def __init__(self, replies: list[Any]) -> None:
        self.replies = deque(replies)

    def send_command(self, *words: str, check_health: bool) -> None:
        assert _connect.pack(words)

    def read_response(self) -> Any:
        reply = self.replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply


WITHOUT_FUNCTIONS = (ResponseError("Function not found"), b"OK", *[b"sha"] * len(scripts.USUAL))
infos = st.one_of(
    answers,
    st.lists(
        st.tuples(
            st.sampled_from([b"run_id", b"uptime_in_seconds", b"redis_version", b"# Server", b""]),
            st.sampled_from([b":", b"", b"::"]),
            st.one_of(
                st.binary(max_size=12),
                st.integers(-5, 10**6).map(lambda n: b"%d" % n),
                st.sampled_from([b"9" * 400, b"9" * 15, "\u00b2".encode(), b"1_0", b" 7", b"1e3"]),
            ),
        ).map(b"".join),
        max_size=6,
    ).map(b"\r\n".join),
)
configs = st.one_of(
    answers,
    st.lists(st.sampled_from([b"appendonly", b"yes", b"appendfsync", b"always", b"no", 1, None, []]), max_size=6),
)
announced = st.one_of(answers, st.sampled_from([[60_000, 9], [2**53 - 1, -1], [2**53, 1]]))


@PROPERTY
@given(
    infos,
    configs,
    announced,
    st.one_of(answers, st.sampled_from([[b"a", -1], [b"a", 5]])),
    st.booleans(),
    st.booleans(),
)
@example(b"uptime_in_seconds:" + b"9" * 400, [], [60_000, 120_000], [b"", -1], True, False)
@example("uptime_in_seconds:\u00b2".encode(), [], [60_000, 120_000], [b"", -1], True, False)
@example(b"uptime_in_seconds:5", [[], b"yes"], [60_000, 120_000], [b"", -1], True, False)
@example(b"run_id:a\nuptime_in_seconds:" + b"9" * 15, [], [2**53 - 1, 5], [b"", -1], True, False)
def test_a_handshake_ends_with_facts_that_can_be_used_or_with_a_reason(info, config, value, known, guard, functions):
    begins = [b"library", b"OK"] if functions else WITHOUT_FUNCTIONS
    try:
        facts = _connect._handshake(Shaken([*begins, info, config, value, known]), "redlock:", 60.0)
    except wire.BadReply as error:  # and no other, which would not say what is wrong
        failure = _connect.Connector(ENDPOINT, 1.0).failure(error)
        assert failure.reason
        assert "\n" not in failure.reason
        return
    assert facts.uptime is None or 0 <= facts.uptime < 10**15
    voters = Voters(("a:1", "b:2"), 60.0, restart_guard=guard)
    voters.admit(0, Facts("b" * 40, 10**6), START)
    notice = voters.admit(1, facts, START + 1)
    assert notice is None or "max_ttl" in notice
    not_counted = voters.why_not_counted(1, START + 2)
    assert not_counted is None or not_counted.reason
    assert voters.quarantined_for(1, START + 2) >= 0


def test_a_master_whose_clock_was_set_back_has_just_started():
    """As far as anybody can tell: it waits, and is not refused for as long as the step was."""
    info = b"run_id:a\r\nuptime_in_seconds:-50\r\n"
    facts = _connect._handshake(Shaken([*WITHOUT_FUNCTIONS, info, [], [60_000, 9], None]), "redlock:", 60.0)
    assert facts.uptime == 0


# -- operations --------------------------------------------------------------------------------------

values = st.one_of(
    answers.filter(lambda value: not isinstance(value, ErrorReply)),
    st.tuples(
        st.sampled_from([0, 1, 2, -1]),
        st.one_of(integers.map(lambda n: b"%d" % n), st.just(b"9" * 400), st.binary(max_size=6)),
    ).map(list),
    st.tuples(st.just(0), st.just(b"5"), st.binary(max_size=6), integers).map(list),
    st.tuples(st.binary(max_size=6), integers, st.binary(max_size=6)).map(list),
    st.floats(),
    st.integers(),
    st.dictionaries(st.integers(), st.none(), max_size=2),
)
VERBS = ("acquire", "fence", "extend", "repair", "release", "status")
hostile = st.fixed_dictionaries(dict.fromkeys(VERBS, values)).map(lambda says: Master(0.0, dict(says)))


@PROPERTY
@given(st.tuples(hostile, hostile), st.booleans())
def test_a_minority_may_say_what_it_likes(two, fencing):
    """P4: with three that do as they should everything works, and the numbers stay such as masters can store."""
    world = World(*two, Master(0.001), Master(0.001), Master(0.001))
    spec = world.spec(fencing=fencing)
    grant = world.run(world.acquire(spec, deadline=START + 5))
    assert isinstance(grant, Grant)
    assert grant.fence is None or 0 < grant.fence < 2**53 or not fencing
    assert (grant.fence is None) == (not fencing)
    lease = LeaseState(spec, grant, clock=lambda: world.now, mine=lambda: True)
    assert lease.valid
    assert str(grant.votes())
    assert world.run(extend(world.settings, spec, lease, 10.0, world.now)).kind == "extended"
    assert lease.remaining() <= 10.0
    assert world.run(release(world.settings, spec, lease)) is True


@PROPERTY
@given(st.lists(hostile, min_size=1, max_size=4))
def test_all_of_them_may(masters):
    """Then nobody can promise anything, but it ends as it always does."""
    world = World(*masters)
    spec = world.spec()
    lease = world.lease(spec)
    outcome = world.run(world.acquire(spec, deadline=START))
    assert str(outcome.votes() if isinstance(outcome, Grant) else outcome.tally.votes())
    world.run(extend(world.settings, spec, lease, 10.0, world.now))
    assert lease.valid_until <= world.now + 10.0
    world.run(release(world.settings, spec, lease))
    status, tally = world.run(inspect(world.settings, "invoice:42", "redlock:invoice:42"))
    assert status.remaining >= 0
    assert tally.need == quorum.majority(len(masters))
