"""What the lock does, as a step relation: all of it that safety rests on, on two screens and a half.

A *state* is what the masters store, what is on its way to them, and what each client knows.  A *step* is one method of
`Rules`: its name says who does what, its checks cite the rule that allows it, its result is the next state.  A step
that the rules do not allow raises `Forbidden`.  Nothing obliges anybody to take a step: late messages, slow masters,
clients that are paused or gone need no words of their own, for time may pass (`wait`) while they do nothing.

*Time.*  There is one clock, and everything has so much *left* on it.  Whatever was asked for at one moment is over at one
moment: after TTL - drift (R6).  Then the lease has ended; and from then on, not before, a master may lose the key
(`expire`), at once or any time later.  So all clocks are in it that differ by less than the drift, steps included.

    clients   ask  settle  grant  give_up  extend  extended  denied  downgrade  repair  release  leave_phantom
    masters   arrive, which carries out one request: on_acquire, on_settle, on_extend, on_repair, on_release, on_phantom
    world     wait  expire  lose  again  crash  restart  evict  draw

`exclusive` (P1), `fenced` (P2), `freed` (P3), `told` (P6), `clean` (P7) and `foreign` (P8) are the promises.  `redlock-chaos explore`
takes every step out of every state of a small world and looks at all of them; the simulation asks of its runs whether each
step is one of these (`tests/bench/replay.py`).  A mutant (`chaos/mutants.py`) replaces one
method.  The state is of one lock and one name.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Token: TypeAlias = Any  # whatever tells attempts apart
What: TypeAlias = Literal["acquire", "settle", "phantom", "extend", "repair", "release"]
Said: TypeAlias = Literal["granted", "taken", "held", "missing", "flagged", "stale", "done"]
Phase: TypeAlias = Literal["idle", "asking", "settling", "leaving", "holding", "crashed"]


class Forbidden(Exception):  # noqa: N818 - what it is: a step that a rule forbids
    """``rule`` does not allow this step."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(f"{rule}: {why}")
        self.rule = rule


class Key(NamedTuple):
    """Who has the lock on a master, and what is left until the key may go."""

    token: Token
    left: float


class Record(NamedTuple):
    """Who was granted the name on a master and has not released it: with which extension, for how long (R35)."""

    token: Token
    mark: int
    ttl: float
    fence: int


class Master(NamedTuple):
    key: Key | None = None
    fence: int = 0
    record: Record | None = None
    quarantined: float = 0  # it may have forgotten keys: so long its vote does not count (R21)
    readers: tuple[Key, ...] = ()  # who share the name; then nobody has it alone (R33)


class Request(NamedTuple):
    what: What
    token: Token
    left: float = 0  # until what is asked for is over, counted from before the first byte was sent (R6)
    ttl: float = 0  # that was asked for; a record has it.  Of a release: nobody may have the name for so long (R28)
    fence: int = 0  # 0: of a rollback, which knows none
    mark: int = 0  # which extension of its lease; 0: none, it is the grant
    shown: frozenset[Any] = frozenset()  # records that may be there, by token and mark (R35)
    shared: bool = False  # of a reader (R33)


class Reply(NamedTuple):
    """``taken``: granted, but the fence that is there is not smaller (R18).  ``missing``: nobody has the key.

    ``votes``: it counts; not that of a master that may have forgotten keys (R21).
    """

    said: Said
    fence: int = 0
    record: Record | None = None
    votes: bool = True


class Round(NamedTuple):
    """What was asked for, what is left of that, and who said what."""

    request: Request
    left: float
    said: tuple[Reply | None, ...]


class Client(NamedTuple):
    """One attempt after the other, and the lease that comes of it; a thread, say."""

    phase: Phase = "idle"
    token: Token = None
    fence: int = 0
    left: float = 0  # of its lease
    rounds: tuple[Round, ...] = ()  # of its attempt one or two; of its lease the extensions that can still count
    floor: int = 0  # the greatest fence that was granted before this attempt began; P2 alone looks at it
    shared: bool = False  # it reads (R33)


class State(NamedTuple):
    """``flight``: of each client, to each master, what has not arrived yet, in order."""

    masters: tuple[Master, ...]
    clients: tuple[Client, ...]
    flight: tuple[tuple[tuple[Request, ...], ...], ...]
    granted: tuple[int, ...] = ()  # all fences, in the order of the grants


def put(items: tuple[Any, ...], place: int, item: Any) -> tuple[Any, ...]:
    return (*items[:place], item, *items[place + 1 :])


class Rules:
    """The rules for ``masters`` masters.  ``confirm``: with R35."""

    def __init__(
        self, masters: int = 3, ttl: float = 10.0, drift: float = 0.102, least: float = 5.0, *, confirm: bool = False
    ) -> None:
        self.size, self.ttl, self.allowance, self.least, self.confirm = masters, ttl, drift, least, confirm

    def start(self, clients: int) -> State:
        return State((Master(),) * self.size, (Client(),) * clients, (((),) * self.size,) * clients)

    # -- what a mutant may get wrong -----------------------------------------------------------------

    def majority(self) -> int:
        return self.size // 2 + 1  # R1

    def ends(self, state: State, ttl: float) -> float:  # noqa: ARG002 - a small world counts otherwise, see `scopes`
        return ttl - self.allowance  # R6: what is asked for now may be over by then, on any clock

    def lasts(self, state: State, left: float) -> float:  # noqa: ARG002 - for mutants
        return left  # R6: a lease, of what was asked for

    def quarantine(self, state: State) -> float:
        return self.ends(state, self.ttl)  # R21: until all has ended that it may have forgotten

    def token(self, c: int, number: int) -> Token:
        return c, number  # R8: of its own for each attempt

    def exceeds(self, proposal: int, fence: int) -> bool:
        return proposal > fence  # R18: equal is not greater

    def keys(self, master: Master) -> tuple[Key, ...]:
        return (*((master.key,) if master.key else ()), *master.readers)

    def owns(self, master: Master, token: Token) -> bool:
        return any(key.token == token for key in self.keys(master))

    def in_the_way(self, master: Master, asked: Request) -> list[Key]:
        """The keys that keep the name from ``asked``.  A reader is kept out by an exclusive key alone, others by readers too (R33)."""
        others = [key for key in self.keys(master) if key.token != asked.token]
        return [] if asked.shared and not master.key else others

    def sent(self, state: State, c: int, request: Request, to: Iterable[int]) -> State:
        """Behind all that is on its way there (R10)."""
        to, line = set(to), state.flight[c]
        line = tuple((*queue, request) if m in to else queue for m, queue in enumerate(line))
        return state._replace(flight=put(state.flight, c, line))

    # -- clients: an attempt -------------------------------------------------------------------------

    def ask(
        self, state: State, c: int, token: Token, proposal: int, ttl: float | None = None, *, shared: bool = False
    ) -> State:
        """An attempt begins: all masters are asked, with a token that was never used and any proposal (R2, R8, R16)."""
        self._must(state.clients[c].phase == "idle", "R9", "the attempt before has not ended")
        ttl = self.ttl if ttl is None else ttl
        request = Request("acquire", token, self.ends(state, ttl), ttl, proposal, shared=shared)
        floor = max(state.granted, default=0)
        client = Client("asking", token, rounds=(self._round(request),), floor=floor, shared=shared)
        return self.sent(self._with(state, c, client), c, request, range(self.size))

    def settle(self, state: State, c: int, fence: int, to: Iterable[int] | None = None) -> State:
        """A greater fence, best the first above all seen, for those that granted or are silent (R17), or show a record (R35)."""
        client = state.clients[c]
        self._must(client.phase == "asking", "R17", "there is nothing to settle")
        first = client.rounds[0]
        over = self.over(first)
        self._must(len(self.may_be_taken(first)) >= self.majority(), "R17", "no majority has granted it")
        self._must(fence > first.request.fence, "R17", f"fence {fence} is no greater one")
        if to is None:
            to = [m for m, reply in enumerate(first.said) if reply is None or reply.said != "held"]
        request = Request("settle", client.token, first.left, first.request.ttl, fence, 0, over, client.shared)
        client = client._replace(phase="settling", rounds=(first, self._round(request)))
        return self.sent(self._with(state, c, client), c, request, to)

    def grant(self, state: State, c: int) -> State:
        """A majority has it, and has stored the fence (R1, R17), in time (R6, R7)."""
        client = state.clients[c]
        self._must(client.phase in ("asking", "settling"), "R12", "nothing was asked for")
        first, last = client.rounds[0], client.rounds[-1]
        self._must(
            self._count(last, "granted") >= self.majority(), "R1", "no majority has granted it and stored its fence"
        )
        left = self.lasts(state, first.left)  # also if there was a second round
        self._must(left >= self.least, "R7", f"only {left} would be left")
        client = client._replace(
            phase="holding", fence=last.request.fence, left=left, rounds=(last._replace(left=first.left),)
        )
        return self._with(state, c, client)._replace(granted=(*state.granted, client.fence))

    def give_up(self, state: State, c: int) -> State:
        """At any moment, for whatever reason: released everywhere, above all on silent masters (R9, R11)."""
        client = state.clients[c]
        self._must(client.phase in ("asking", "settling", "leaving"), "R9", "there is no attempt")
        state = self._with(state, c, Client())
        return self.sent(state, c, Request("release", client.token), range(self.size))

    # -- clients: a lease ----------------------------------------------------------------------------

    def extend(self, state: State, c: int, mark: int, ttl: float | None = None) -> State:
        """Only while it is valid (R12); a shorter TTL counts from now on (C6).  The grant repairs nothing any more (R37)."""
        client = state.clients[c]
        self._must(self.may_extend(client), "R12", "the lease has ended")
        ttl = self.ttl if ttl is None else ttl
        request = Request("extend", client.token, self.ends(state, ttl), ttl, client.fence, mark, shared=client.shared)
        rounds = (*(one for one in client.rounds if self.repairs(one)), self._round(request))
        client = client._replace(left=min(client.left, request.left), rounds=rounds)
        return self.sent(self._with(state, c, client), c, request, range(self.size))

    def extended(self, state: State, c: int, mark: int) -> State:
        """A majority still had the token, and the lease is valid now (R12).  Of what was sent since, the shortest counts (C6)."""
        client = state.clients[c]
        rounds = [one for one in client.rounds if one.request.mark >= mark]
        self._must(self.may_extend(client), "R12", "the lease has ended, and is not brought back")
        self._must(
            mark > 0 and bool(rounds) and rounds[0].request.mark == mark, "R12", "no such extension can count any more"
        )
        self._must(self._count(rounds[0], "granted") >= self.majority(), "R12", "no majority still had the token")
        left = self.lasts(state, min(one.left for one in rounds))
        return self._with(state, c, client._replace(left=max(left, client.left)))

    def downgrade(self, state: State, c: int) -> State:
        """From now on it reads, and its next extension tells the masters (R33)."""
        client = state.clients[c]
        self._must(self.may_extend(client), "R33", "the lease has ended")
        return self._with(state, c, client._replace(shared=True))

    def denied(self, state: State, c: int, mark: int) -> State:
        """A majority says that it has not the token: that is proof, and the lease ends at once (R13)."""
        client = state.clients[c]
        [asked] = [one for one in client.rounds if one.request.mark == mark]
        self._must(self._count(asked, "held", "missing") >= self.majority(), "R13", "no majority has denied it")
        return self._with(state, c, client._replace(left=0))

    def repair(self, state: State, c: int, m: int, mark: int | None = None) -> State:
        """Where nobody had the key when it was extended, and a majority had (R14); until then, anywhere (R37).  It is no vote."""
        client = state.clients[c]
        self._must(self.valid(client), "R14", "the lease has ended")
        won = [one for one in client.rounds if self._count(one, "granted") >= self.majority()]
        found = [one for one in won if one.request.mark == 0 or self._said(one, m) == "missing"]
        found = [one for one in found if mark in (None, one.request.mark)]
        self._must(bool(found), "R14", f"no extension was won that found no key on master {m}")
        rounds = tuple(
            one._replace(said=put(one.said, m, Reply("done"))) if one is found[0] else one for one in client.rounds
        )
        state, left = self._with(state, c, client._replace(rounds=rounds)), found[0].left
        request = Request("repair", client.token, left, fence=client.fence, shared=client.shared)
        return self.sent(state, c, request, [m])

    def release(self, state: State, c: int, keep: float = 0) -> State:
        """It is over before the first byte is sent, everywhere, lost or not.  ``keep``: nobody has the name for so long (R28)."""
        client = state.clients[c]
        self._must(client.phase == "holding", "R12", "it holds nothing")
        state = self._with(state, c, Client())
        request = Request("release", client.token, keep and self.ends(state, keep), keep, client.fence)
        return self.sent(state, c, request, range(self.size))

    # -- clients: an expiry is confirmed by more than one clock (R35) --------------------------------

    def over(self, first: Round) -> frozenset[Any]:
        """What has run out for certain: f + 1 masters show the same extension of the same lease."""
        shown = Counter((one.record.token, one.record.mark) for one in first.said if one and one.record)
        return frozenset(which for which, times in shown.items() if times > self.size - self.majority())

    def may_be_taken(self, first: Round) -> list[int]:
        over = self.over(first)
        return [
            m
            for m, one in enumerate(first.said)
            if one and one.votes and (one.said in ("granted", "taken") or (one.record and one.record[:2] in over))
        ]

    def leave_phantom(self, state: State, c: int, fence: int, to: Iterable[int] | None = None) -> State:
        """Nobody can tell whether it is over: the name is nobody's for the longest TTL that was shown.  Then it gives up."""
        client = state.clients[c]
        self._must(client.phase in ("asking", "leaving"), "R35", "there is nothing in doubt")
        first = client.rounds[0]
        answered = [m for m, one in enumerate(first.said) if one and one.votes and one.said != "held"]
        shown = [one.record for one in first.said if one and one.record]
        self._must(bool(shown) and len(answered) >= self.majority(), "R35", "it is not in doubt")
        ttl, of = max(record.ttl for record in shown), frozenset(record[:2] for record in shown)
        request = Request("phantom", client.token, self.ends(state, ttl), ttl, fence, 0, of)
        state = self._with(state, c, client._replace(phase="leaving"))
        return self.sent(state, c, request, answered if to is None else to)

    # -- masters -------------------------------------------------------------------------------------

    def arrive(self, state: State, c: int, m: int, *, heard: bool = True) -> State:
        """Master ``m`` carries out the next request of client ``c``, and that hears of it; or never does."""
        request, *later = state.flight[c][m]
        run: Callable[[Master, Request], tuple[Master, Reply]] = getattr(self, f"on_{request.what}")
        master, reply = run(state.masters[m], request)
        if master.quarantined > 0:
            reply = reply._replace(votes=False, record=None)  # R21
        flight = put(state.flight, c, put(state.flight[c], m, tuple(later)))
        state = state._replace(masters=put(state.masters, m, master), flight=flight)
        client = state.clients[c]
        if not heard or client.token != request.token:
            return state
        rounds = tuple(
            one._replace(said=put(one.said, m, reply))
            if (one.request.what, one.request.mark) == (request.what, request.mark) and self._said(one, m) != "granted"
            else one
            for one in client.rounds
        )
        return self._with(state, c, client._replace(rounds=rounds))

    def on_acquire(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        if self.in_the_way(master, asked):
            return master, Reply("held", master.fence)
        if not self.keys(master) and master.record is not None:
            return master, Reply("flagged", master.fence, master.record)  # R35: nothing was changed
        master = self._has(master, asked)
        if not self.exceeds(asked.fence, master.fence):
            return master, Reply("taken", master.fence)
        return self._stored(master, asked), Reply("granted", asked.fence)

    def on_settle(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        if not self._may(master, asked) or not self.exceeds(asked.fence, master.fence):
            return master, Reply("held", master.fence)
        master = master if self.owns(master, asked.token) else self._has(master, asked)
        return self._stored(master, asked), Reply("granted", asked.fence)

    def on_phantom(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        if not self._may(master, asked):
            return master, Reply("held", master.fence)
        nobody = asked._replace(token=("nobody", asked.token), fence=max(asked.fence, master.fence))
        master = master._replace(key=Key(nobody.token, asked.left))
        return self._stored(master, nobody), Reply("granted", nobody.fence)

    def on_extend(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        if not self.owns(master, asked.token) or not (asked.shared or master.key):  # it reads there by now (R33)
            return master, Reply("held" if self.keys(master) else "missing", master.fence)
        before = master.record
        if before and (before.mark >= asked.mark if before.token == asked.token else before.fence > (asked.fence)):
            return master, Reply("stale", master.fence)
        recorded = self.confirm and not asked.shared
        record = Record(asked.token, asked.mark, asked.ttl, asked.fence) if recorded else None
        return self._has(master, asked)._replace(record=record), Reply("granted", master.fence)

    def on_repair(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        """The greater of the two fences stays, and so does a key that lives longer: it was extended where it was handed over."""
        fence, others = (
            asked.fence,
            master.record if master.record and master.record.token != asked.token else None,
        )
        if self.in_the_way(master, asked) or (others and others.fence > fence):
            return master, Reply("held", master.fence)
        own = [key for key in self.keys(master) if key.token == asked.token]
        stays = own and (self.confirm or own[0].left > asked.left)
        record = None if others else master.record
        master = master if stays else self._has(master, asked)
        return master._replace(fence=max(fence, master.fence), record=record), Reply("done")

    def on_release(self, master: Master, asked: Request) -> tuple[Master, Reply]:
        """Only what is the caller's (P8); and what is on record from before, which a release knows to be over (R35)."""
        record = master.record
        if record and (record.token == asked.token or record.fence <= asked.fence):
            record = None
        key = master.key
        if key and key.token == asked.token:
            key = Key(("released", asked.token), min(key.left, asked.left)) if asked.ttl else None
        readers = tuple(one for one in master.readers if one.token != asked.token)
        return master._replace(key=key, record=record, readers=readers), Reply("done")

    def _may(self, master: Master, asked: Request) -> bool:
        if self.keys(master):
            return self.owns(master, asked.token) and (master.record is None or master.record.mark == 0)
        return self.confirm and master.record is not None and master.record[:2] in asked.shown

    def _has(self, master: Master, asked: Request) -> Master:
        key, others = Key(asked.token, asked.left), tuple(one for one in master.readers if one.token != asked.token)
        return master._replace(key=None, readers=(*others, key)) if asked.shared else master._replace(key=key)

    def _stored(self, master: Master, asked: Request) -> Master:
        record = Record(asked.token, 0, asked.ttl, asked.fence) if self.confirm and not asked.shared else None
        return master._replace(fence=asked.fence, record=record)

    # -- the world -----------------------------------------------------------------------------------

    def wait(self, state: State, d: float) -> State:
        """Time passes.  What is over is over for good, and stays as it is."""
        clients = self._may_count(state, d)
        return state._replace(
            masters=tuple(
                one._replace(
                    key=one.key and self._aged(one.key, d),
                    quarantined=max(0, one.quarantined - d),
                    readers=tuple(self._aged(key, d) for key in one.readers),
                )
                for one in state.masters
            ),
            clients=tuple(self._later(one, d) if one.left or one.rounds else one for one in clients),
            flight=tuple(
                tuple(tuple(self._less(one, d) for one in queue) if queue else queue for queue in line)
                for line in state.flight
            ),
        )

    def _may_count(self, state: State, d: float) -> tuple[Client, ...]:
        """An answer that a master gave while its votes did not count is a vote once its client reads it later (R21)."""
        ends = [0 < master.quarantined <= d for master in state.masters]
        if not any(ends):
            return state.clients
        return tuple(
            client._replace(
                rounds=tuple(
                    one._replace(
                        said=tuple(
                            reply._replace(votes=True) if reply and over else reply
                            for reply, over in zip(one.said, ends, strict=True)
                        )
                    )
                    for one in client.rounds
                )
            )
            for client in state.clients
        )

    def _aged(self, key: Key, d: float) -> Key:
        return Key(key.token, max(0, key.left - d))

    def _less(self, one: Any, d: float) -> Any:
        """Of a request, of a round: of what is over nothing changes, and most is, in a long run."""
        return one._replace(left=max(0, one.left - d)) if one.left > 0 else one

    def _later(self, client: Client, d: float) -> Client:
        """An extension that is over can keep nothing any more."""
        rounds = [self._less(one, d) for one in client.rounds]
        rounds = [one for one in rounds if one.left > 0 or client.phase != "holding"]
        return client._replace(left=max(0, client.left - d), rounds=tuple(rounds))

    def expire(self, state: State, m: int, token: Token = None) -> State:
        """A key goes, by the clock of its master.  ``token``: that of a reader."""
        master = state.masters[m]
        over = [key for key in self.keys(master) if key.left <= 0 and token in (None, key.token)]
        self._must(bool(over), "R6", "no clock may be so fast")
        readers = tuple(key for key in master.readers if key not in over)
        master = master._replace(key=None if master.key in over else master.key, readers=readers)
        return state._replace(masters=put(state.masters, m, master))

    def lose(self, state: State, c: int, m: int, place: int = 0) -> State:
        """A connection breaks: a request is lost.  A release never is: it is owed (R10)."""
        queue = state.flight[c][m]
        self._must(queue[place].what != "release", "R10", "a release is owed until it was answered")
        queue = queue[:place] + queue[place + 1 :]
        return state._replace(flight=put(state.flight, c, put(state.flight[c], m, queue)))

    def again(self, state: State, c: int, m: int, request: Request) -> State:
        """Nobody knows whether it arrived, so it is sent once more, in front of its release; what sets a key only there (R10).

        What sets the time of a key is not sent behind a later extension (R12).
        """
        creates = request.what in ("acquire", "repair", "phantom") or (request.what == "settle" and self.confirm)
        queue = state.flight[c][m]
        of_it = [i for i, one in enumerate(queue) if one.what == "release" and one.token == request.token]
        wanted = not creates or bool(of_it) or state.clients[c].token == request.token
        self._must(wanted, "R10", f"{request.what} behind its release")
        client = state.clients[c]
        later = client.token == request.token and any(one.request.mark > request.mark for one in client.rounds)
        self._must(
            request.what not in ("acquire", "extend") or not later, "R12", f"{request.what} behind a later extension"
        )
        place = of_it[0] if of_it else len(queue)
        queue = (*queue[:place], request, *queue[place:])
        return state._replace(flight=put(state.flight, c, put(state.flight[c], m, queue)))

    def crash(self, state: State, c: int) -> State:
        """A client is gone.  What it has sent may arrive, or not."""
        return self._with(state, c, state.clients[c]._replace(phase="crashed", left=0, rounds=()))

    def restart(self, state: State, m: int) -> State:
        """A master comes back without its memory.  What it has said and nobody has read is lost with the connection."""
        state = state._replace(masters=put(state.masters, m, Master(quarantined=self.quarantine(state))))
        for c, client in enumerate(state.clients):
            rounds = tuple(
                one._replace(said=put(one.said, m, None)) if (reply := one.said[m]) and not reply.votes else one
                for one in client.rounds
            )
            state = self._with(state, c, client._replace(rounds=rounds)) if rounds != client.rounds else state
        return state

    def evict(self, state: State, m: int) -> State:
        """A master loses the lock key, and only that: somebody deleted it, or its clock has stepped by more than the drift."""
        return state._replace(masters=put(state.masters, m, state.masters[m]._replace(key=None, readers=())))

    def draw(self, state: State, m: int, number: int) -> State:
        """Somebody draws a ticket, to wait in order: its number is a fence as well, and is greater (R42)."""
        self._must(self.exceeds(number, state.masters[m].fence), "R42", f"ticket {number} is not the last one")
        return state._replace(masters=put(state.masters, m, state.masters[m]._replace(fence=number)))

    # -- the promises: None, or what is wrong --------------------------------------------------------

    def exclusive(self, state: State) -> str | None:
        """P1: two leases are never valid at the same time, unless both are of readers."""
        valid = [client for client in state.clients if self.valid(client)]
        wrong = len(valid) > 1 and not all(client.shared for client in valid)
        return f"P1: {[client.token for client in valid]} are valid at the same time" if wrong else None

    def fenced(self, before: State, after: State) -> str | None:
        """P2: fences are unique, and greater than those of leases that were granted before the attempt began."""
        if len(after.granted) == len(before.granted):
            return None
        fence = after.granted[-1]
        floor = next(
            a.floor for a, b in zip(after.clients, before.clients, strict=True) if a.phase == "holding" != b.phase
        )
        return f"P2: fence {fence} after {before.granted}" if fence in before.granted or fence <= floor else None

    def freed(self, before: State, after: State, c: int, m: int) -> str | None:
        """P3: no key is made to live for longer than was asked for, so nobody who is gone keeps a name for longer."""
        old, key, request = before.masters[m].key, after.masters[m].key, before.flight[c][m][0]
        most = max(request.left, old.left if old else 0)
        return f"P3: {request.what} of {request.token} lets its key live too long" if key and key.left > most else None

    def told(self, before: State, after: State) -> str | None:
        """P6: a lease that is over, as its holder can see, is never valid again (R12)."""
        for one, then in zip(before.clients, after.clients, strict=True):
            if one.phase == "holding" and one.token == then.token and one.left <= 0 < then.left:
                return f"P6: the lease of {one.token} had ended, and is valid"
        return None

    def clean(self, state: State) -> str | None:
        """P7: a key is somebody's, or what removes it is on its way; some are nobody's for a while (R28, R35), and a crashed client cleans nothing."""
        if any(client.phase == "crashed" for client in state.clients):
            return None
        known = {client.token for client in state.clients}
        for m, master in enumerate(state.masters):
            if master.key is None or master.key.token in known:
                continue
            token = master.key.token
            if token[0] in ("nobody", "released"):
                continue
            if not any(one.what == "release" and one.token == token for line in state.flight for one in line[m]):
                return f"P7: master {m} keeps a key of {token}, and no client removes it"
        return None

    def foreign(self, before: State, after: State, c: int, m: int) -> str | None:
        """P8: what arrived has not removed, shortened or extended the key of somebody else."""
        key, request = before.masters[m].key, before.flight[c][m][0]
        if key is None or key.token == request.token or key == after.masters[m].key:
            return None
        return f"P8: {request.what} of {request.token} changes the key of {key.token}"

    def valid(self, client: Client) -> bool:
        return client.phase == "holding" and client.left > 0

    def repairs(self, asked: Round) -> bool:
        """Whether it may repair although another extension begins (R37)."""
        return asked.request.mark > 0

    def may_extend(self, client: Client) -> bool:
        return self.valid(client)

    # ------------------------------------------------------------------------------------------------

    def _round(self, request: Request) -> Round:
        return Round(request._replace(left=0), request.left, (None,) * self.size)

    def _said(self, asked: Round, m: int) -> Said | None:
        reply = asked.said[m]
        return reply.said if reply else None

    def _count(self, asked: Round, *said: Said) -> int:
        return sum(reply is not None and reply.votes and reply.said in said for reply in asked.said)

    def _with(self, state: State, c: int, client: Client) -> State:
        return state._replace(clients=put(state.clients, c, client))

    def _must(self, allowed: bool, rule: str, why: str) -> None:
        if not allowed:
            raise Forbidden(rule, why)
