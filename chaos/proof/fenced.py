"""P2: fencing tokens of one name are unique, and greater than those of all leases that were granted before.

`Fenced` has no clock: it holds whatever clocks do, while masters remember their fences.  `Forgetful` adds masters that forget
them, in a restart or because nobody has used the name for long.  Then it rests on the wall clocks of clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .logic import Majority, Master, Number, Proof, State, Term, Time, Token, both, choose, either, implies, no

if TYPE_CHECKING:
    from collections.abc import Iterator


class Fenced(Proof):
    promise = "P2"
    title = "Fences are unique, and increase in the order of grants: without any clock, while masters remember."
    fields: ClassVar = {
        "fence": ("master", "Time", "the fence of master {0} is {1}"),
        "used": ("token", "Yes", "{0} has been used"),
        "asking": ("token", "Yes", "{0} is an attempt"),
        "granted": ("token", "Yes", "{0} was granted"),
        "by": ("token", "Majority", "... by {1}"),  # a ghost
        "sent": ("token number", "Yes", "{0} has sent round {1}"),  # 0, and 1 if it settles
        "proposal": ("token number", "Time", "... which proposes {2}"),
        "last": ("token", "Number", "the last round of {0} is {1}"),
        "stored": ("master token number", "Yes", "master {0} has said that it has stored round {2} of {1}"),
        "before": ("token token", "Yes", "{0} was granted before {1} began"),  # a ghost
    }
    ghosts: ClassVar = ("by", "before")
    elsewhere: ClassVar = {"settle, R17: it is greater": "P2 where masters forget"}
    steps: ClassVar[tuple[str, ...]] = (
        "ask",
        "settle",
        "grant",
        "give_up",
        "crash",
        "on_acquire",
        "on_settle",
        "on_repair",
        "on_phantom",
        "draw",
    )

    def fence_of(self, s: State, t: Token) -> Term:
        return s.proposal[t, s.last[t]]

    def forgotten(self, s: State, m: Master, p: Term) -> Term:  # noqa: ARG002
        """Whether a fence is among those that the master has forgotten; `missed`: had, when it stored that round."""
        return False

    def missed(self, s: State, p: Term, m: Master, u: Token, k: Number) -> Term:  # noqa: ARG002
        return False

    def promised(self, s: State) -> Term:
        fence = self.fence_of
        return self.every("token token", lambda t, u: implies(both(t != u, s.granted[t], s.granted[u]), both(
            fence(s, t) != fence(s, u), implies(s.before[t, u], fence(s, u) > fence(s, t)),
        )))  # fmt: skip

    def invariant(self, s: State) -> Iterator[tuple[str, Term]]:
        every = self.every
        yield "a token is that of an attempt, or was granted, and was fresh once", every("token", lambda t: both(
            no(both(s.asking[t], s.granted[t])), implies(either(s.asking[t], s.granted[t]), s.used[t]),
        ))  # fmt: skip
        yield (
            "only what was used has sent anything, and only what was sent is stored",
            every(
                "master token number",
                lambda m, t, k: both(implies(s.sent[t, k], s.used[t]), implies(s.stored[m, t, k], s.sent[t, k])),
            ),
        )
        yield "an attempt has sent its acquire, and nothing after its last round", every("token number", lambda t, k: implies(
            s.asking[t], both(s.sent[t, 0], implies(s.sent[t, k], k <= s.last[t])),
        ))  # fmt: skip
        yield "a master has the fence that it has stored, or a greater one", every(
            "master token number", lambda m, t, k: implies(s.stored[m, t, k], either(
                s.fence[m] >= s.proposal[t, k], self.forgotten(s, m, s.proposal[t, k]),
            )),
        )  # fmt: skip
        yield "it has stored no fence twice", every("master token number token number", lambda m, t, k, u, n: implies(
            both(s.stored[m, t, k], s.stored[m, u, n], t != u), either(
                s.proposal[t, k] != s.proposal[u, n],
                self.missed(s, s.proposal[t, k], m, u, n), self.missed(s, s.proposal[u, n], m, t, k),
        )))  # fmt: skip
        yield "a majority has stored a granted fence", every("master token", lambda m, t: implies(
            both(s.granted[t], self.member(s.by[t], m)), s.stored[m, t, s.last[t]],
        ))  # fmt: skip
        yield "a grant before an attempt began is another one, and was granted", every("token token", lambda t, u: implies(
            s.before[t, u], both(s.granted[t], s.used[u], t != u),
        ))  # fmt: skip
        yield "and masters that stored it store only greater ones for that attempt", every(
            "master token token number", lambda m, t, u, n: implies(
                both(s.before[t, u], self.member(s.by[t], m), s.stored[m, u, n]),
                either(s.proposal[u, n] > self.fence_of(s, t), self.missed(s, self.fence_of(s, t), m, u, n)),
        ))  # fmt: skip

    def scene(self, s: State) -> tuple[Term, ...]:
        return s.granted[0], s.granted[1], s.before[0, 1], s.last[1] == 1

    def start(self, s: State) -> Term:
        return both(
            self.every("token", lambda t: both(no(s.used[t]), no(s.asking[t]), no(s.granted[t]))),
            self.every("token token", lambda t, u: no(s.before[t, u])),
            self.every("master token number", lambda m, t, k: both(no(s.sent[t, k]), no(s.stored[m, t, k]))),
        )

    # -- clients -------------------------------------------------------------------------------------------

    def ask(self, s: State, t: Token, p: Time) -> None:
        """An attempt begins: with any proposal."""
        self.must("R8: the token is fresh", no(s.used[t]))
        s.used[t] = s.asking[t] = s.sent[t, 0] = True
        s.proposal[t, 0], s.last[t] = p, 0
        granted = s.granted.read
        s.before.become(lambda o, u, old: either(old, both(u == t, granted(o))))

    def settle(self, s: State, t: Token, p: Time) -> None:
        """A second round, with a greater proposal."""
        self.must("R17: it is not granted yet", both(s.asking[t], s.last[t] == 0))
        self.must("R17: it is greater", p > s.proposal[t, 0])
        s.sent[t, 1], s.proposal[t, 1], s.last[t] = True, p, 1

    def grant(self, s: State, t: Token, q: Majority) -> None:
        """The fence is what the last round proposed."""
        self.must("R17: once", s.asking[t])
        self.must("R17: a majority has stored it", self.every("master", lambda m: implies(
            self.member(q, m), s.stored[m, t, s.last[t]],
        )))  # fmt: skip
        s.asking[t], s.granted[t], s.by[t] = False, True, q

    def give_up(self, s: State, t: Token) -> None:
        s.asking[t] = False

    def crash(self, s: State, t: Token) -> None:
        s.asking[t] = False

    # -- masters -------------------------------------------------------------------------------------------

    def stores(self, s: State, m: Master, t: Token, k: Number) -> None:
        self.must("R8: it was sent", s.sent[t, k])
        self.must("R18: equal is not greater", s.proposal[t, k] > s.fence[m])
        s.fence[m], s.stored[m, t, k] = s.proposal[t, k], True

    def on_acquire(self, s: State, m: Master, t: Token) -> None:
        self.stores(s, m, t, 0)

    def on_settle(self, s: State, m: Master, t: Token) -> None:
        self.stores(s, m, t, 1)

    def raised(self, s: State, m: Master, p: Time) -> None:
        self.must("R14: the greater of the two stays", p >= s.fence[m])
        s.fence[m] = p

    def on_repair(self, s: State, m: Master, p: Time) -> None:
        self.raised(s, m, p)

    def on_phantom(self, s: State, m: Master, p: Time) -> None:
        self.raised(s, m, p)

    def draw(self, s: State, m: Master, p: Time) -> None:
        """A ticket is a fence as well (R42)."""
        self.raised(s, m, p)


class Forgetful(Fenced):
    """Time is wall time in its unit, which is that of fences.  An attempt takes `long` at most: so much of its TTL must be left (R7)."""

    promise = "P2, forgetful"
    title = (
        "The same where masters forget: if the clocks of clients, and what an attempt takes, are within the quarantine."
    )
    fields: ClassVar = Fenced.fields | {
        "now": ("", "Time", "it is {0}"),
        "apart": ("", "Time", "wall clocks of clients are right to within {0}"),
        "long": ("", "Time", "an attempt takes {0} at most"),
        "quarantine": ("", "Time", "a master that forgets does not vote for {0}"),
        "lasts": ("", "Time", "a fence that is not used lasts for {0}"),
        "begun": ("token", "Time", "{0} began at {1}"),
        "touched": ("master", "Time", "the fence of master {0} was used at {1}"),
        "votes": ("master", "Time", "master {0} votes from {1} on"),
        "since": ("master token number", "Time", "master {0} votes for round {2} of {1} from {3} on"),
        "lost": ("master", "Time", "what master {0} has forgotten is {1} at most"),  # a ghost, as the next one
        "lost_then": (
            "master token number",
            "Time",
            "what master {0} had forgotten when it stored round {2} of {1} was {3} at most",
        ),
    }
    elsewhere: ClassVar = {}
    steps: ClassVar[tuple[str, ...]] = (*Fenced.steps, "wait", "restart", "lapse")

    def forgotten(self, s: State, m: Master, p: Term) -> Term:
        return p <= s.lost[m]

    def missed(self, s: State, p: Term, m: Master, u: Token, k: Number) -> Term:
        return p <= s.lost_then[m, u, k]

    def invariant(self, s: State) -> Iterator[tuple[str, Term]]:
        yield from super().invariant(s)
        every, ahead, margin = self.every, s.now[()] + s.apart[()], s.long[()] + s.apart[()]
        yield "assumed: wall clocks and what an attempt takes are within what masters wait before they vote", both(
            s.apart[()] >= 0, s.long[()] >= 0,
            margin + s.apart[()] < s.quarantine[()], margin + s.apart[()] < s.lasts[()],
        )  # fmt: skip
        yield (
            "no fence is ahead of the fastest clock",
            both(
                every("master", lambda m: both(s.fence[m] <= s.touched[m] + s.apart[()], s.touched[m] <= s.now[()])),
                every("token number", lambda t, k: implies(s.sent[t, k], s.proposal[t, k] <= ahead)),
            ),
        )
        yield "none is behind the slowest clock of when its attempt began", every("token number", lambda t, k: implies(
            s.sent[t, k], s.proposal[t, k] >= s.begun[t] - s.apart[()],
        ))  # fmt: skip
        yield "a master votes long after all that it has forgotten", both(
            every("master", lambda m: s.lost[m] + margin < s.votes[m]),
            every("master token number", lambda m, t, k: implies(
                s.stored[m, t, k], s.lost_then[m, t, k] + margin < s.since[m, t, k],
            )),
        )  # fmt: skip
        yield "so what was granted is greater than all of that", every("master token", lambda m, t: implies(
            both(s.granted[t], self.member(s.by[t], m)), self.fence_of(s, t) > s.lost_then[m, t, s.last[t]],
        ))  # fmt: skip

    def start(self, s: State) -> Term:
        margin = s.long[()] + s.apart[()]
        return both(
            super().start(s), s.apart[()] >= 0, s.long[()] >= 0,
            margin + s.apart[()] < s.quarantine[()], margin + s.apart[()] < s.lasts[()],
            self.every("master", lambda m: both(
                s.fence[m] <= s.touched[m], s.touched[m] <= s.now[()], s.lost[m] + margin < s.votes[m],
            )),
        )  # fmt: skip

    def clock(self, s: State, p: Time) -> None:
        self.must("R16: no clock of a client is further ahead", p <= s.now[()] + s.apart[()])

    def ask(self, s: State, t: Token, p: Time) -> None:
        super().ask(s, t, p)
        self.clock(s, p)
        self.must("R16: no clock of a client is further behind", p >= s.now[()] - s.apart[()])
        s.begun[t] = s.now[()]

    def settle(self, s: State, t: Token, p: Time) -> None:
        super().settle(s, t, p)
        self.clock(s, p)

    def grant(self, s: State, t: Token, q: Majority) -> None:
        self.must("R21: who counts may vote", self.every("master", lambda m: implies(
            self.member(q, m), s.now[()] >= s.since[m, t, s.last[t]],
        )))  # fmt: skip
        self.must("R7: in time", s.now[()] <= s.begun[t] + s.long[()])
        super().grant(s, t, q)

    def stores(self, s: State, m: Master, t: Token, k: Number) -> None:
        first = no(s.stored[m, t, k])  # its client hears of that, and of no other
        super().stores(s, m, t, k)
        s.touched[m] = s.now[()]
        s.since[m, t, k] = choose(first, s.votes[m], s.since[m, t, k])
        s.lost_then[m, t, k] = choose(first, s.lost[m], s.lost_then[m, t, k])

    def raised(self, s: State, m: Master, p: Time) -> None:
        super().raised(s, m, p)
        self.clock(s, p)
        s.touched[m] = s.now[()]

    def wait(self, s: State, d: Time) -> None:
        self.must("R5: no clock goes back", d >= 0)
        s.now[()] = s.now[()] + d

    def forgets(self, s: State, m: Master, p: Time, most: Term, votes: Term) -> None:
        self.must("R16: a fence on a master was proposed", p <= s.fence[m])
        s.fence[m] = p
        s.lost[m] = choose(most > s.lost[m], most, s.lost[m])
        s.votes[m] = choose(votes > s.votes[m], votes, s.votes[m])

    def restart(self, s: State, m: Master, p: Time, votes: Time) -> None:
        self.must("R21: it does not vote for the quarantine", votes >= s.now[()] + s.quarantine[()])
        self.forgets(s, m, p, s.now[()] + s.apart[()], votes)

    def lapse(self, s: State, m: Master, p: Time) -> None:
        """Nobody has used the name for long."""
        self.must("R20: its time has passed", s.now[()] >= s.touched[m] + s.lasts[()])
        self.forgets(s, m, p, s.touched[m] + s.apart[()], s.now[()])
