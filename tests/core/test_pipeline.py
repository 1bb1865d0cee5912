"""The order of one connection, and what is owed when it breaks (R10)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from redlock._core import wire
from redlock._core.effects import Send
from redlock._core.fair import tickets
from redlock._core.outcomes import NEVER, ErrorReply, Failure
from redlock._core.pipeline import Pipeline, Queued, SentAgain, request_of

KEYS = wire.keys_for("redlock:", ["a"])
TOKEN = "0f" * 20
BROKEN = Failure("error", "connection lost")
NOSCRIPT = ErrorReply("NOSCRIPT No matching script.")


class Asked(Send):
    """It remembers what it was told, and says what it was told to: that it ``ends_it``, or not, and what it ``asks`` for."""

    __slots__ = ("asks", "ends_it", "heard_late", "told")

    def __init__(self, call: wire.Call, owed_until: float | None = None) -> None:
        super().__init__(call, owed_until=owed_until)
        self.told: list[tuple[int, Any, float]] = []
        self.heard_late: list[tuple[int, Any, float]] = []
        self.ends_it = True
        self.asks: tuple[Send, ...] = ()

    def voted(self, master: int, at: float) -> bool:
        return self.answered(master, "usual", at)

    def answered(self, master: int, value: Any, at: float) -> bool:
        self.told.append((master, value, at))
        self.more += self.asks
        return self.ends_it

    def late(self, master: int, value: Any, at: float) -> None:
        self.heard_late.append((master, value, at))
        self.more += self.asks

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        return self.answered(master, failure, at)


def acquire(token: str = TOKEN) -> Asked:
    request = Asked(wire.acquire(KEYS, token, 10.0, 1, 3600.0))
    request.open = True
    return request


def release(token: str = TOKEN, owed_until: float = 100.0) -> Asked:
    return Asked(wire.release(KEYS, token), owed_until)


class Box(list[Send]):
    put = list[Send].append


def connected(patience: float = 0.25) -> Pipeline:
    pipeline = Pipeline(3, patience)
    pipeline.connected(0.0)
    return pipeline


def submit(pipeline: Pipeline, request: Send, at: float, box: Box | None = None) -> bool:
    """Whether the connection is to write it."""
    request.sent_at, request.inbox = at, Box() if box is None else box
    return pipeline.submit(request, at)


def answer(pipeline: Pipeline, value: object, at: float) -> Send:
    """Whose answer it was."""
    queued = pipeline.under_way[0]
    pipeline.answered(value, at)
    return request_of(queued)


def as_text(queued: Queued) -> bool:
    return isinstance(queued, SentAgain) and queued.text


# -- stories -----------------------------------------------------------------------------------------

OF = {
    "a": wire.acquire(KEYS, TOKEN, 10.0, 1, 3600.0), "r": wire.release(KEYS, TOKEN), "R": wire.release(KEYS, TOKEN),
    "f": wire.fence(KEYS, TOKEN, 5, 60.0), "e": wire.extend(KEYS, TOKEN, 2.0, 60.0),
    "n": wire.renew([(KEYS, TOKEN, 10.0)], 60.0), "m": wire.mark(KEYS, TOKEN, 10.0), "p": wire.repair(KEYS, TOKEN, 10.0, 1, 60.0),
    "t": tickets.leave(KEYS, TOKEN, 60.0), "k": wire.mark(KEYS, TOKEN, 0.0),
}  # fmt: skip
OWED = {"r": 100.0, "R": 100.0, "t": NEVER, "k": NEVER}


class Named(Asked):
    """It writes down what becomes of it: ``=`` it was answered, ``~`` too late, ``!`` it failed, ``?`` it was never sent."""

    __slots__ = ("name", "story")

    def __init__(self, name: str, story: Story) -> None:
        super().__init__(OF[name[0]], OWED.get(name[0]))
        self.open = name[0] not in "rtk"
        if name[0] == "p":
            self.only_if = lambda: self.open
        self.name, self.story = name, story
        self.inbox = Box()

    def answered(self, master: int, value: Any, at: float) -> bool:
        if self.story.doubted:
            raise ConnectionAbortedError("nobody here has proposed it")
        self.story.said.append(f"{self.name}=")
        return True

    def late(self, master: int, value: Any, at: float) -> None:
        self.story.said.append(f"{self.name}~")

    def failed(self, master: int, failure: Failure, at: float) -> bool:
        self.story.said.append(f"{self.name}{'!' if failure.sent else '?'}")
        return True


class Story:
    """What happens, in words, and what comes of it.  A step takes 10 ms, and they begin when all has been quiet for 3 s.

    ``a1``: an acquire is submitted; ``r1``: a release that nobody awaits; ``R1``: one that somebody does; ``f1``: a fence; ``e1``:
    an extension; ``n1``: that of many; ``p1``: a repair; ``m1``: a mark; ``k1``: its end; ``t1``: a ticket is given back.
    ``ok``: an answer comes.  ``no``: it says that the script is not known; ``w``: what it asks for is written.
    ``-a1``: the round of that one is over.
    ``x``: the connection breaks, ``X``: for good.  ``c``: there is a new one; what it is to write at once stands in
    brackets.  ``u``: none could be made.  ``new``: there was none from the beginning.
    ``odd``: an answer comes that cannot be ours.  ``zz``: 0.2 s pass.  ``fork``: this is a forked child.
    """

    doubted = False

    def __init__(self) -> None:
        self.pipeline = connected()
        self.at = 3.0
        self.said: list[str] = []
        self.requests: dict[str, Named] = {}

    def play(self, words: str) -> str:
        for word in words.split():
            self.at += 0.01
            if (step := getattr(self, word, None)) is not None:
                step(word)
            elif word[0] == "-":
                self.requests[word[1:]].open = False
            else:
                request = self.requests[word] = Named(word, self)
                submit(self.pipeline, request, self.at, Box())
        for name, request in self.requests.items():  # whoever waits is told, once
            assert len(told_in(request)) == sum(what[:-1] == name and what[-1] != "~" for what in self.said)
        assert self.pipeline.idle == (not self.pipeline.owes and not self.pipeline.under_way)
        return " ".join([*self.said, "."] if self.pipeline.idle else self.said)

    def ok(self, _: str) -> None:
        assert not self.pipeline.answered([1, b"1"], self.at)

    def no(self, _: str) -> None:
        assert self.pipeline.answered(NOSCRIPT, self.at)

    def w(self, _: str) -> None:
        for queued in self.pipeline.more():
            assert as_text(queued)
            request = request_of(queued)
            assert hasattr(request, "name") or (request.call.keys, request.call.args[0]) == ((), "0")
            self.said.append(f"+{getattr(request, 'name', 'the text alone')}")

    def x(self, how: str) -> None:
        self.pipeline.broken(BROKEN, self.at, for_good=how == "X")
        assert not self.pipeline.due(self.at)

    X = x

    def odd(self, _: str) -> None:
        self.doubted = True
        with pytest.raises(ConnectionAbortedError, match="nobody here"):
            self.pipeline.answered([1, b"1"], self.at)

    def zz(self, _: str) -> None:
        self.at += 0.2

    def fork(self, _: str) -> None:
        self.pipeline.disown()

    def c(self, _: str) -> None:
        self.pipeline.connected(self.at)
        due = self.pipeline.due(self.at)
        assert not any(queued.text for queued in due)  # the new process may know the script, or may not
        assert not self.pipeline.more()  # that was for the old one
        assert not self.pipeline.due(self.at)  # once
        self.said.append(f"[{' '.join(getattr(queued.request, 'name', '') for queued in due)}]")

    def u(self, _: str) -> None:
        self.pipeline.unreachable(BROKEN._replace(sent=False), self.at)

    def new(self, _: str) -> None:
        self.pipeline = Pipeline(3, 0.25)


def told_in(request: Send) -> Box:
    assert isinstance(request.inbox, Box)
    return request.inbox


@pytest.mark.parametrize(("story", "said"), [
    pytest.param("a1 a2 R1 ok ok ok", "a1= a2= R1= .", id="answers-belong-to-requests-in-their-order"),
    pytest.param("a1 -a1 ok", "a1~ .", id="nobody-is-told-of-an-answer-to-a-round-that-is-decided"),
    pytest.param("new a1 r1 c", "a1? [r1]", id="while-it-connects-nothing-is-sent"),
    # A proxy closed it while our process stood still: the master is well.
    pytest.param("a1 x a2 c ok ok", "[a1 a2] a1= a2= .", id="what-met-an-idle-connection-is-asked-again-over-the-new-one"),
    pytest.param("x a1 c", "[a1]", id="that-nothing-was-under-way-makes-no-difference"),
    pytest.param("r1 a2 x c", "[r1 a2]", id="behind-what-is-owed"),
    pytest.param("a1 x -a1 r1 c", "[r1]", id="an-attempt-that-is-over-is-not-made-again"),  # its rollback is owed (R10)
    pytest.param("R1 x c ok c", "[R1] R1= [] .", id="a-release-that-somebody-awaits-neither-fails-nor-is-sent-twice"),
    # What was written may have arrived, and has to be rolled back there.
    pytest.param("a1 x u a2 c", "a1! a2? [] .", id="without-a-new-connection-it-fails"),
    pytest.param("x a1 u a2", "a1? a2? .", id="without-a-new-connection-it-was-never-sent"),
    pytest.param("a1 ok a2 x", "a1= a2! .", id="a-connection-in-use-fails-what-was-under-way"),  # its master is gone
    pytest.param("a1 x c x", "[a1] a1! .", id="it-is-asked-again-only-once"),
    pytest.param("a1 X a2", "a1! a2? .", id="nothing-waits-for-a-connection-that-will-never-be"),
    # A fence that was stored is not greater than itself (R18).
    pytest.param("f1 x", "f1! .", id="what-would-answer-something-else-the-second-time-is-not-asked-again"),
    pytest.param("a1 -a1 x c", "[] .", id="nobody-is-told-of-a-connection-that-breaks-after-the-round"),
    # R10: and never the acquire.
    pytest.param("a1 ok a2 r2 x c ok", "a1= a2! [r2] r2~ .", id="a-release-that-it-swallowed-is-sent-again-first"),
    pytest.param("r1 x c x c x c", "[r1] [r1] [r1]", id="and-again-if-that-connection-breaks-as-well"),
    pytest.param("r1 x r2 r3 r4 c", "[r1 r2 r3 r4]", id="releases-while-it-is-down-are-owed-in-their-order"),
    # The answer to the text is the answer; a second NOSCRIPT is one, too.
    pytest.param("a1 no w no w", "+a1 a1! .", id="the-text-is-sent-once"),
    pytest.param("r1 no w no w", "+r1 .", id="also-if-nobody-counts"),
    pytest.param("a1 a2 no w ok ok", "+a1 a2= a1= .", id="the-text-stands-behind-what-was-sent-in-between"),
    # R10: not behind its release; and not behind a later extension, whose time it would take away (R12).
    pytest.param("a1 -a1 r1 no w ok", "+the text alone r1~", id="an-attempt-that-is-over-is-not-made-with-the-text"),
    pytest.param("e1 -e1 e2 no w ok", "+the text alone e2=", id="nor-is-an-extension-that-is-over"),
    pytest.param("e1 no w ok", "+e1 e1= .", id="one-that-somebody-awaits-is"),
    # It would leave a key, or take its time away; but a master that always answers last has to learn it some time (R14).
    *(pytest.param(f"{one}1 -{one}1 no w no w", "+the text alone .", id=f"of-what-is-over-only-the-text-is-sent-{one}") for one in "aenmp"),
    pytest.param("p1 no w ok", "+p1 p1= .", id="a-master-that-forgot-its-keys-has-forgotten-its-scripts"),
    # A ticket (R42), a mark (R33): those behind would wait until they end by themselves.
    *(pytest.param(f"{one}1 no w ok", f"+{one}1 {one}1~ .", id=f"a-waiter-gives-it-back-where-the-script-is-not-known-{one}") for one in "tk"),
    pytest.param("a1 zz a2 zz a3 r1 ok ok ok a4 ok", "a3? a1= a2= r1~ a4= .", id="a-silent-master-is-sent-nothing-new-but-releases"),
    # P1: another process reads from the same socket.  What is torn for it fails, and a release is owed (R10).
    pytest.param("a1 r1 odd x c", "a1! [r1]", id="an-answer-that-cannot-be-ours-fails-with-all-that-was-asked-there"),
    pytest.param("new r1 c a1 r2 fork a2", "[r1] a2? .", id="what-was-asked-and-what-is-owed-is-nothing-to-a-forked-child"),
    pytest.param("r1 no x c no w", "[r1] +r1", id="an-owed-release-starts-from-the-beginning-on-a-new-connection"),
])  # fmt: skip
def test_what_becomes_of_requests(story: str, said: str) -> None:
    assert Story().play(story) == said


# -- what is owed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "sent"), [(9.9, True), (10.0, False), (11.0, False)])
def test_it_is_owed_until_the_key_must_have_expired(at: float, sent: bool) -> None:
    """Also behind one that is owed for long."""
    pipeline = Pipeline(0, 0.25)
    submit(pipeline, release("long", owed_until=1e6), 0.0)
    submit(pipeline, release("short", owed_until=10.0), 0.0)
    assert not submit(pipeline, release("never", owed_until=5.0), 5.0)  # it has expired when it is given back
    pipeline.connected(0.3)
    assert [queued.request.call.args[0] for queued in pipeline.due(at)] == ["long", "short"][: 1 + sent]


@pytest.mark.parametrize("long", [0, 1])
def test_a_master_that_stays_down_does_not_pile_up_debts(long: int) -> None:
    """An outage of hours with clients that keep trying (C1): what has expired is of no use to anybody,
    and at exit nobody should wait for it.  One ``long`` debt does not keep all the others."""
    pipeline = Pipeline(0, 0.25)
    for _ in range(long):
        submit(pipeline, release("long", owed_until=1e6), 0.0)
    for at in range(10_000):
        submit(pipeline, release(str(at), owed_until=at + 20.0), float(at))
    assert len(pipeline._owed) < 100
    assert pipeline.due(10_018.0) == []
    assert len(pipeline._owed) == 1 + long
    pipeline.due(10_019.0)  # nobody submits anything any more
    assert pipeline.owes == (not pipeline.idle) == bool(long)


@pytest.mark.parametrize(("text", "asks", "again"), [
    *((f"{code} x", release, True) for code in ("BUSY", "LOADING", "MISCONF", "NOREPLICAS", "READONLY", "OOM")),
    ("WRONGTYPE no", release, False),
    ("LOADING x", acquire, False),
])  # fmt: skip
def test_what_a_master_cannot_do_now_is_owed(text: str, asks: Any, again: bool) -> None:
    pipeline = connected()
    request = asks()
    request.open = True
    submit(pipeline, request, 0.0)
    with pytest.raises(ConnectionAbortedError) if "READONLY" in text else contextlib.nullcontext():  # a replica (R21)
        answer(pipeline, ErrorReply(text), 0.1)
    [(_, failure, _)] = request.told  # whoever counts is told at once
    assert text in failure.reason
    assert pipeline.owes == again
    assert [queued.request for queued in pipeline.due(0.2)] == [request] * again


def test_what_a_master_does_not_permit_is_asked_again_later_and_later() -> None:
    """P7: it can be reached, and may be given the rights back while the key lives."""
    pipeline = connected(patience=0.25)
    request = release(owed_until=10.0)
    submit(pipeline, request, 0.0)
    now, asked = 0.0, 0
    while not pipeline.idle:
        answer(pipeline, ErrorReply("NOPERM no"), now)
        due: list[Any] = []
        while not (due or pipeline.idle):
            now += 1 / 1024
            due = pipeline.due(now)
        asked += len(due)
    assert asked == 9
    assert 9.9 < now < 10.1


def test_without_rights_for_long_few_of_many_releases_are_asked_again() -> None:
    """Or a user who may do nothing there would cost more than one who may."""
    pipeline = connected()
    for _ in range(1000):
        submit(pipeline, release(owed_until=10.0), 0.0)
        answer(pipeline, ErrorReply("NOPERM no"), 0.1)
    assert 10 < len(pipeline.due(5.0)) < 100


class Until:
    """A doubt that remains for so many answers."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    def remains(self, master: int, value: Any) -> bool:
        self.left -= 1
        return self.left >= 0


def test_a_release_in_doubt_is_asked_again_later_and_later() -> None:
    """R10: what sets the key may be on its way over another connection."""
    pipeline = connected(patience=0.25)
    request = release(owed_until=100.0)
    request.open = True
    request.doubt = Until(8).remains
    submit(pipeline, request, 0.0)
    now, pauses = 0.0, []
    while True:
        more = pipeline.answered([0, b""], now)
        assert pipeline.owes == more
        if not more:
            break
        asked = now
        while not pipeline.due(now):
            now += 1 / 1024
        pauses.append(round(now - asked, 2))
        request.open = False  # whoever counts has been told of the first answer
    assert pauses == [0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert len(request.told) == 1
    assert pipeline.idle


# -- what an answer asks for -------------------------------------------------------------------------


@pytest.mark.parametrize("open_", [True, False])
def test_what_an_answer_asks_for_stands_behind_what_was_written_before(open_: bool) -> None:
    """R14: and in front of what is written later, a release for example."""
    pipeline = connected()
    first, second = acquire("1"), acquire("2")
    first.open = open_
    submit(pipeline, first, 0.0)
    submit(pipeline, second, 0.0)
    wanted = [
        Send(wire.repair(KEYS, token, 10.0, 1, 60.0), only_if=only_if)
        for token, only_if in (("a", lambda: True), ("b", None))
    ]
    first.asks = (wanted[0], Send(wire.repair(KEYS, "no", 10.0, 1, 60.0), only_if=lambda: False), wanted[1])
    assert pipeline.answered([0, b""], 0.1)
    all_queued = pipeline.more()
    assert [(queued, as_text(queued), request_of(queued).sent_at) for queued in all_queued] == [
        (one, False, 0.1) for one in wanted
    ]
    assert not pipeline.more()
    assert [request_of(queued) for queued in pipeline.under_way] == [second, *wanted]


def test_what_one_master_is_to_be_asked_is_not_left_to_another() -> None:
    """A Ctrl-C came between its answer and what was to follow: that connection is closed, the request lives on."""
    pipeline = connected()
    request = acquire()
    submit(pipeline, request, 0.0)
    request.more = (Send(wire.repair(KEYS, "t", 10.0, 1, 60.0)),)
    assert not pipeline.answered([0, b""], 0.1)
    assert pipeline.idle
