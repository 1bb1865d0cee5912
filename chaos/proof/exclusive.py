"""P1: two leases on one name are never valid at the same time, unless both are of readers.

The state is what `chaos.specification` has, less what P1 does not rest on (fences, the order of what is on its way).  Steps
have the names that they have there.  What stands in them beyond that is chosen freely, within what the rules say: for how long a key lasts,
when it arrives, whether anybody hears of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .logic import Majority, Master, Number, Proof, State, Term, Time, Token, Yes, both, choose, either, implies, no

if TYPE_CHECKING:
    from collections.abc import Iterator


def span(d: Time) -> Time:
    """No time is less than none."""
    return choose(d > 0, d, 0)


class Exclusive(Proof):
    promise = "P1"
    title = "Two leases on one name are never valid at the same time, unless both are of readers."
    elsewhere: ClassVar = {
        "settle, R17: it has asked": "P2",
        "grant, R7: something is left": "P2 where masters forget: an attempt is short",
        "extend, R12: it is valid": "P6: masters extend only what they still have",
        "extended, R12: there is a lease": "P6",
        "extended, R12: that was sent": "nothing: masters vote for nothing else",
        "downgrade, R33: it is valid": "P6",
        "repair, R14: it is valid": "P7",
        "repair, R14: a majority has the token": "P4: it would keep out others",
        "again, R10: it was sent before": "P7",
    }
    fields: ClassVar = {
        # masters
        "key": ("master token", "Yes", "master {0} has a key of {1}"),
        "key_left": ("master token", "Time", "... which lasts for {2} more"),
        "reads": ("master token", "Yes", "... as a reader"),
        "quarantine": ("master", "Time", "master {0} is quarantined for {1} more"),
        # clients: request 0 is the acquire, then come the extensions
        "used": ("token", "Yes", "{0} has been used"),
        "asking": ("token", "Yes", "{0} is an attempt"),
        "holding": ("token", "Yes", "{0} is a lease"),
        "left": ("token", "Time", "... and counts on {1} more"),
        "basis": ("token", "Number", "... by request {1}"),  # a ghost, as the next one
        "by": ("token", "Majority", "... and the votes of {1}"),
        "shared": ("token", "Yes", "{0} is a reader"),
        "sent": ("token number", "Yes", "{0} has sent request {1}"),
        "asked": ("token number", "Time", "... for {2} more"),
        "vote": ("master token number", "Yes", "master {0} has said yes to request {2} of {1}"),
        "late": ("master token number", "Yes", "master {0} has, in quarantine, said yes to request {2} of {1}"),
        "following": (
            "master token",
            "Number",
            "no request before number {2} of {1} may arrive at master {0} any more",
        ),
        "forgotten": (
            "master token",
            "Time",
            "master {0} had promised {1} the name for {2} more, and has forgotten that",
        ),  # a ghost
    }
    ghosts = ("forgotten", "basis", "by")
    steps: ClassVar[tuple[str, ...]] = (
        "ask", "settle", "grant", "give_up", "extend", "extended", "denied", "downgrade", "repair", "release", "again", "crash",
        "on_acquire", "on_settle", "on_extend", "on_repair", "on_release", "on_release_to_keep",
        "wait", "expire", "restart", "evict",
    )  # fmt: skip

    # -- what is true in every state -----------------------------------------------------------------------

    def live(self, s: State, t: Token) -> Term:
        return either(s.asking[t], s.holding[t])

    def there(self, s: State, m: Master, t: Token) -> Term:
        """So long its key lasts."""
        return choose(s.key[m, t], s.key_left[m, t], 0)

    def word(self, s: State, m: Master, t: Token) -> Term:
        """So long the master has promised the name: by its key, or, while it is quarantined, by one that it has forgotten."""
        return choose(s.quarantine[m] > 0, s.forgotten[m, t], self.there(s, m, t))

    def promised(self, s: State) -> Term:
        def valid(t: Token) -> Term:
            return both(s.holding[t], s.left[t] > 0)

        return self.every(
            "token token", lambda t, u: implies(both(t != u, valid(t), valid(u)), both(s.shared[t], s.shared[u]))
        )

    def invariant(self, s: State) -> Iterator[tuple[str, Term]]:
        every, live = self.every, self.live
        yield "no time is less than none", both(
            every("master token", lambda m, t: both(s.key_left[m, t] >= 0, s.forgotten[m, t] >= 0)),
            every("master", lambda m: s.quarantine[m] >= 0),
            every("token", lambda t: s.left[t] >= 0),
            every("token number", lambda t, k: s.asked[t, k] >= 0),
        )  # fmt: skip
        yield "a token is that of an attempt, or of a lease, and was fresh once", every("token", lambda t: both(
            no(both(s.asking[t], s.holding[t])), implies(live(s, t), s.used[t]),
        ))  # fmt: skip
        yield "nothing is known of a fresh token", every("master token number", lambda m, t, k: implies(no(s.used[t]), both(
            s.forgotten[m, t] == 0, no(either(s.key[m, t], s.sent[t, k], s.vote[m, t, k], s.late[m, t, k])),
        )))  # fmt: skip
        yield "an attempt has sent its acquire, and nothing else", every("master token number", lambda m, t, k: both(
            implies(s.sent[t, k], both(k >= 0, implies(s.asking[t], k == 0))),
            implies(live(s, t), both(s.sent[t, 0], s.following[m, t] >= 0)),
        ))  # fmt: skip
        yield "on a master one has the key, or all that have one read", every("master token token", lambda m, t, u: implies(
            both(t != u, s.key[m, t], s.key[m, u]), both(s.reads[m, t], s.reads[m, u]),
        ))  # fmt: skip
        yield "only a reader has the key of one", every("master token", lambda m, t: implies(
            both(s.key[m, t], s.reads[m, t], live(s, t)), s.shared[t],
        ))  # fmt: skip
        yield "a key lasts for as long as one of its requests", every("master token", lambda m, t: implies(
            both(s.key[m, t], live(s, t)), self.some("number", lambda k: both(s.sent[t, k], s.key_left[m, t] >= s.asked[t, k])),
        ))  # fmt: skip
        yield "a master is quarantined until all has ended that it has forgotten", every("master token", lambda m, t: implies(
            both(s.quarantine[m] > 0, live(s, t)), s.forgotten[m, t] <= s.quarantine[m],
        ))  # fmt: skip
        yield "and what it has forgotten was one, or of readers", every("master token token", lambda m, t, u: implies(
            both(t != u, s.quarantine[m] > 0, live(s, t), live(s, u), s.forgotten[m, t] > 0, s.forgotten[m, u] > 0),
            both(s.shared[t], s.shared[u]),
        ))  # fmt: skip
        yield "a master that votes keeps its word: until that request has ended, or one that was sent later", every(
            "master token number", lambda m, t, k: implies(both(s.vote[m, t, k], live(s, t)), self.some("number", lambda n: both(
                n >= k, s.sent[t, n], self.word(s, m, t) >= s.asked[t, n],
            ))),
        )  # fmt: skip
        yield "and so it will, if its vote counts only later", every(
            "master token number", lambda m, t, k: implies(both(s.late[m, t, k], live(s, t)), both(
                s.quarantine[m] > 0,
                self.some("number", lambda n: both(
                    n >= k, s.sent[t, n], either(self.there(s, m, t) >= s.asked[t, n], s.quarantine[m] >= s.asked[t, n]),
                )),
            )),
        )  # fmt: skip
        yield "votes are for requests that were sent, and nothing that was sent before arrives any more", every(
            "master token number", lambda m, t, k: implies(both(either(s.vote[m, t, k], s.late[m, t, k]), live(s, t)), both(
                s.sent[t, k], k <= s.following[m, t],
            )),
        )  # fmt: skip
        yield "a lease that is valid rests on the votes of a majority", every("master token", lambda m, t: implies(
            both(s.holding[t], s.left[t] > 0, self.member(s.by[t], m)), s.vote[m, t, s.basis[t]],
        ))  # fmt: skip
        yield "and ends no later than that request, and all that were sent later", every("token number", lambda t, k: implies(
            both(s.holding[t], s.left[t] > 0, k >= s.basis[t], s.sent[t, k]), s.left[t] <= s.asked[t, k],
        ))  # fmt: skip

    def scene(self, s: State) -> tuple[Term, ...]:
        return s.holding[0], s.left[0] > 1, s.asking[1], s.vote[2, 1, 0], s.late[1, 1, 0]

    def start(self, s: State) -> Term:
        return both(
            self.every("token", lambda t: both(no(s.used[t]), no(s.asking[t]), no(s.holding[t]), s.left[t] == 0)),
            self.every("token number", lambda t, k: both(no(s.sent[t, k]), s.asked[t, k] == 0)),
            self.every("master", lambda m: s.quarantine[m] == 0),
            self.every(
                "master token", lambda m, t: both(no(s.key[m, t]), s.key_left[m, t] == 0, s.forgotten[m, t] == 0)
            ),
            self.every("master token number", lambda m, t, k: both(no(s.vote[m, t, k]), no(s.late[m, t, k]))),
        )

    # -- clients -------------------------------------------------------------------------------------------

    def ask(self, s: State, t: Token, d: Time, shared: Yes) -> None:
        """An attempt begins: all masters are asked, with a fresh token."""
        self.must("R8: the token is fresh", no(s.used[t]))
        s.used[t] = s.asking[t] = s.sent[t, 0] = True
        s.asked[t, 0], s.shared[t] = span(d), shared
        s.following.become(lambda _, u, old: choose(u == t, 0, old))

    def settle(self, s: State, t: Token) -> None:
        """A second round, for a greater fence: for no longer than the first."""
        self.must("R17: it has asked", s.asking[t])

    def grant(self, s: State, t: Token, q: Majority, v: Time) -> None:
        """A majority has it: the lease counts on no more than was asked for, since before that was sent."""
        self.must("R12: it has asked", s.asking[t])
        self.must("R1: a majority votes", self.every("master", lambda m: implies(self.member(q, m), s.vote[m, t, 0])))
        self.must("R6: it ends with its request", v <= s.asked[t, 0])
        self.must("R7: something is left", v > 0)
        s.asking[t], s.holding[t], s.left[t] = False, True, span(v)
        s.basis[t], s.by[t] = 0, q

    def give_up(self, s: State, t: Token) -> None:
        """At any moment, for whatever reason."""
        s.asking[t] = False

    def extend(self, s: State, t: Token, k: Number, d: Time, v: Time) -> None:
        """The next request; if it asks for less time, that counts from now on."""
        self.must("R12: there is a lease", s.holding[t])
        self.must("R12: it is valid", s.left[t] > 0)
        self.must(
            "R10: a later request has a greater number", self.every("number", lambda n: implies(s.sent[t, n], n < k))
        )
        self.must("C6: if that is less, it counts from now on", v <= d)
        s.sent[t, k], s.asked[t, k] = True, span(d)
        s.left[t] = choose(v < s.left[t], span(v), s.left[t])

    def extended(self, s: State, t: Token, k: Number, q: Majority, v: Time) -> None:
        """A majority still had the token, and the lease is valid.  Of what was sent since, and is not over, the shortest counts."""
        self.must("R12: there is a lease", s.holding[t])
        self.must("R12: it is valid", s.left[t] > 0)
        self.must("R12: that was sent", s.sent[t, k])
        self.must("R1: a majority votes", self.every("master", lambda m: implies(self.member(q, m), s.vote[m, t, k])))
        self.must("R6: it ends with its request", v <= s.asked[t, k])
        self.must(
            "C6: and with those that were sent later",
            self.every("number", lambda n: implies(both(n > k, s.sent[t, n], s.asked[t, n] > 0), v <= s.asked[t, n])),
        )
        newer = k > s.basis[t]
        s.basis[t], s.by[t] = choose(newer, k, s.basis[t]), choose(newer, q, s.by[t])
        s.left[t] = choose(v > s.left[t], v, s.left[t])

    def denied(self, s: State, t: Token) -> None:
        """A majority says that it has not the token: the lease has ended."""
        s.left[t] = 0

    def downgrade(self, s: State, t: Token) -> None:
        """From now on it reads."""
        self.must("R33: it is valid", both(s.holding[t], s.left[t] > 0))
        s.shared[t] = True

    def repair(self, s: State, t: Token, k: Number, q: Majority) -> None:
        """A master that had no key is sent it.  Nothing changes before it arrives, whenever that is."""
        self.must("R14: it is valid", both(s.holding[t], s.left[t] > 0))
        self.must(
            "R14: a majority has the token", self.every("master", lambda m: implies(self.member(q, m), s.vote[m, t, k]))
        )

    def release(self, s: State, t: Token) -> None:
        """It is over before the first byte is sent."""
        s.holding[t] = False

    def crash(self, s: State, t: Token) -> None:
        s.asking[t] = s.holding[t] = False

    def again(self, s: State, m: Master, t: Token, k: Number) -> None:
        """Nobody knows whether it has arrived, so it is sent once more, but never behind a later one."""
        self.must("R10: it was sent before", s.sent[t, k])
        self.must("R12: never behind a later one", self.every("number", lambda n: implies(s.sent[t, n], n <= k)))
        s.following[m, t] = choose(k < s.following[m, t], k, s.following[m, t])

    # -- masters -------------------------------------------------------------------------------------------

    def free(self, s: State, m: Master, t: Token, shared: Yes) -> Term:
        """Nobody else has the name there, or both read."""
        return self.every("token", lambda u: implies(both(u != t, s.key[m, u]), both(shared, s.reads[m, u])))

    def reader(self, s: State, t: Token, shared: Yes) -> Term:
        """Who asks as a reader is one, unless it is over."""
        return implies(both(shared, self.live(s, t)), s.shared[t])

    def has(self, s: State, m: Master, t: Token, v: Time, shared: Yes) -> None:
        """Whatever else stands there is gone, but among readers."""
        reads = s.reads.read
        s.key.become(lambda o, u, old: both(old, either(o != m, u == t, both(shared, reads(o, u)))))
        s.key[m, t], s.key_left[m, t], s.reads[m, t] = True, span(v), shared

    def says_yes(self, s: State, m: Master, t: Token, k: Number, heard: Yes) -> None:
        """Which counts now, or, if it may have forgotten keys, later."""
        counts = self.rule("R21: a quarantined master does not vote", s.quarantine[m] <= 0)
        s.vote[m, t, k] = either(s.vote[m, t, k], both(heard, counts))
        s.late[m, t, k] = either(s.late[m, t, k], both(heard, no(counts)))

    def on_acquire(self, s: State, m: Master, t: Token, v: Time, shared: Yes, heard: Yes) -> None:
        self.must("R8: it was sent", s.sent[t, 0])
        self.must("R10: in order", s.following[m, t] <= 0)
        self.must("P8: the name is free", self.free(s, m, t, shared))
        self.must("R6: the key lasts as long as the request", v >= s.asked[t, 0])
        self.must("R33: only a reader reads", self.reader(s, t, shared))
        self.has(s, m, t, v, shared)
        self.says_yes(s, m, t, 0, heard)

    def on_settle(self, s: State, m: Master, t: Token, heard: Yes) -> None:
        self.must("R17: it has the key", s.key[m, t])
        self.says_yes(s, m, t, 0, heard)

    def on_extend(self, s: State, m: Master, t: Token, k: Number, v: Time, shared: Yes, heard: Yes) -> None:
        self.must("R12: it was sent", s.sent[t, k])
        self.must("R10: in order", s.following[m, t] <= k)
        self.must("R12: it still has the key", s.key[m, t])
        self.must("R33: a reader does not write again", either(shared, no(s.reads[m, t])))
        self.must("R6: the key lasts as long as the request", v >= s.asked[t, k])
        self.must("R33: only a reader reads", self.reader(s, t, shared))
        self.has(s, m, t, v, shared)
        s.following[m, t] = k
        self.says_yes(s, m, t, k, heard)

    def on_repair(self, s: State, m: Master, t: Token, k: Number, v: Time, shared: Yes) -> None:
        """It is no vote.  A key that lasts longer stays."""
        self.must("R14: for a request that was sent", s.sent[t, k])
        self.must("P8: the name is free", self.free(s, m, t, shared))
        self.must("R14: a key that lasts longer stays", implies(s.key[m, t], v >= s.key_left[m, t]))
        self.must("R6: the key lasts as long as the request", v >= s.asked[t, k])
        self.must("R33: only a reader reads", self.reader(s, t, shared))
        self.has(s, m, t, v, shared)

    def on_release(self, s: State, m: Master, t: Token, u: Token) -> None:
        """``u``: whose key goes."""
        self.must("R9: it has ended before that is sent", no(self.live(s, t)))
        self.must("P8: the key is its own", u == t)
        s.key[m, u] = False

    def on_release_to_keep(self, s: State, m: Master, t: Token, u: Token, v: Time) -> None:
        """``u``: nobody; it has the name for a while."""
        self.must("R9: it has ended before that is sent", no(self.live(s, t)))
        self.must("P8: the key is its own", both(s.key[m, t], no(s.reads[m, t])))
        self.must("R28: no client has it then", no(self.live(s, u)))
        s.key[m, t] = False
        self.has(s, m, u, v, shared=False)
        s.used[u] = True

    # -- the world -----------------------------------------------------------------------------------------

    def wait(self, s: State, d: Time) -> None:
        self.must("R5: no clock goes back", d >= 0)

        def less(*at: Term) -> Term:
            return span(at[-1] - d)

        ends, late = s.quarantine.read, s.late.read
        s.vote.become(lambda m, t, k, old: either(old, both(late(m, t, k), ends(m) <= d)))
        s.late.become(lambda m, _t, _k, old: both(old, ends(m) > d))
        for field in (s.key_left, s.forgotten, s.quarantine, s.left, s.asked):
            field.become(less)

    def expire(self, s: State, m: Master, t: Token) -> None:
        self.must("R6: no clock is so fast", s.key_left[m, t] <= 0)
        s.key[m, t] = False

    def restart(self, s: State, m: Master, d: Time) -> None:
        """A master comes back without its memory, and is quarantined until all is over that it may have forgotten."""
        self.must("R21: until all has ended that it may have forgotten", both(
            d >= s.quarantine[m], self.every("token", lambda t: d >= self.there(s, m, t)),
        ))  # fmt: skip
        before = s.copy()
        s.forgotten.become(lambda o, t, old: choose(o == m, self.word(before, o, t), old))
        s.key.become(lambda o, _t, old: both(old, o != m))
        s.late.become(lambda o, _t, _k, old: both(old, o != m))
        s.quarantine[m] = span(d)

    def evict(self, s: State, m: Master, t: Token) -> None:
        """A master loses a key early, as one does whose clock is fast; but it is quarantined for longer."""
        self.must("R21: its vote does not count until then", s.key_left[m, t] <= s.quarantine[m])
        s.key[m, t] = False
