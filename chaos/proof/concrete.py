"""Steps that were taken, by a specification (`chaos.specification`), are steps that the proofs allow.

What is seen of a state becomes the fields of a proof; its step is taken with what was chosen; and what then is seen must be what
the proof says.  A client forgets what it needs no more, and the proof remembers: so of what was said, sent and
used it may have more.  That is no harm, for no step asks for less of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .exclusive import Exclusive
from .fenced import Fenced
from .logic import Field, Fields, Seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..specification import Request, Rules, State
    from .logic import Proof

    Facts = dict[str, dict[Any, Any]]
    Taken = list[tuple[str, tuple[Any, ...]]]

TINY: Final = 1e-9
NOBODY: Final = ("nobody", "released")
YES: Final = ("granted", "taken")


class Disallowed(AssertionError):  # noqa: N818 - what it is: a step that no proof allows
    """A step was taken that a proof does not allow."""


class Concrete:
    """Compares, and counts, what `rules` of the specification did."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.compared = rules, 0

    def exclusive(self, step: str, before: State, args: tuple[Any, ...], after: State) -> None:
        self._compare(Exclusive, exclusive_facts, exclusive_steps, step, before, args, after)

    def fenced(self, step: str, before: State, args: tuple[Any, ...], after: State) -> None:
        if step != "wait":  # it has no clock
            self._compare(Fenced, fenced_facts, fenced_steps, step, before, args, after)

    def _compare(self, of: type[Proof], facts: Callable[[State], Facts], steps: Callable[..., Taken], step: str,
                 before: State, args: tuple[Any, ...], after: State) -> None:  # fmt: skip
        old, new = facts(before), facts(after)
        tokens = tuple(dict.fromkeys((*old["used"], *new["used"])))
        numbers = tuple(sorted({0, *(at[1] for one in (old, new) for at in one["sent"])}))
        proof = of(Seen(master=range(len(before.masters)), token=tokens, number=numbers))
        fields = Fields(
            {name: _field(old.get(name, {}), places, kind) for name, (places, kind, _) in of.fields.items()}
        )
        for name, chosen in steps(self.rules, step, before, args, after, old):
            allowed, fields = proof.take(name, fields, chosen)
            if not allowed:
                raise Disallowed(f"{step}{args}: {proof.promise} does not allow {name}{chosen}: {proof.refused()}")
        self.compared += 1
        for name, known in new.items():
            there = dict.fromkeys(old[name], False) | known if name in ALL else known
            for at, value in there.items():
                said = getattr(fields, name)[at]
                if not RELATION.get(name, _equal)(value, said):
                    raise Disallowed(f"{step}{args}: {name}{at} is {value}, and by the proof of {proof.promise} {said}")


def _field(known: dict[Any, Any], places: str, kind: str) -> Field:
    other = False if kind == "Yes" else 0
    return Field(places, lambda *at: known.get(at if " " in places else at[0], other))


def _equal(value: Any, said: Any) -> bool:
    return bool(abs(value - said) < TINY)


ALL: Final = ("key", "asking", "holding")  # where there is none, there must be none
RELATION: Final[dict[str, Callable[[Any, Any], bool]]] = {
    # the proof remembers, or the client counts on less
    "used": lambda *_: True,
    **dict.fromkeys(("sent", "vote", "late", "stored", "granted"), lambda value, said: said or not value),
    "left": lambda value, said: value < said + TINY,
    "following": lambda value, said: value >= said,
}


def _requests(state: State, *what: str) -> list[tuple[Any, Request, float]]:
    """What clients count on, and what is on its way: and what is left of it."""
    found = [(one.token, asked.request, asked.left) for one in state.clients for asked in one.rounds]
    found += [(one.token, one, one.left) for line in state.flight for queue in line for one in queue]
    return [one for one in found if one[1].what in what]


def _used(state: State) -> dict[Any, bool]:
    used = [one.token for one in state.clients if one.token is not None]
    used += [key.token for master in state.masters for key in (master.key, *master.readers) if key]
    used += [one.token for line in state.flight for queue in line for one in queue]
    return dict.fromkeys(used, True)


# -- P1 ------------------------------------------------------------------------------------------------------


def exclusive_facts(state: State) -> Facts:  # noqa: C901 - one thing after the other
    facts: Facts = {name: {} for name in Exclusive.fields if name not in Exclusive.ghosts}
    facts["used"] = _used(state)
    for token, request, left in _requests(state, "acquire", "settle", "extend"):
        facts["sent"][token, request.mark], facts["asked"][token, request.mark] = True, left
    for line in state.flight:
        for m, queue in enumerate(line):
            for one in queue:
                if one.what in ("acquire", "extend"):
                    place = m, one.token
                    facts["following"][place] = min(one.mark, facts["following"].get(place, one.mark))
    for m, master in enumerate(state.masters):
        facts["quarantine"][m] = master.quarantined
        for key in (master.key, *master.readers):
            if key:
                place = m, key.token
                facts["key"][place], facts["key_left"][place], facts["reads"][place] = (
                    True,
                    max(0, key.left),
                    key is not master.key,
                )
    for client in state.clients:
        token = client.token
        facts["asking"][token] = client.phase in ("asking", "settling")
        facts["holding"][token] = client.phase == "holding"
        facts["left"][token], facts["shared"][token] = client.left, client.shared
        for asked in client.rounds:
            for m, reply in enumerate(asked.said):
                if reply and reply.said in YES:
                    at = m, token, asked.request.mark
                    facts["vote" if reply.votes else "late"][at] = True
    return facts


def _those(said: dict[Any, Any], token: Any, number: int) -> frozenset[int]:
    return frozenset(m for m, t, k in said if (t, k) == (token, number))


def _majority(state: State, q: frozenset[int]) -> frozenset[int]:
    if len(q) <= len(state.masters) // 2:
        raise Disallowed(f"R1: {sorted(q)} are no majority of {len(state.masters)}")
    return q


def exclusive_steps(  # noqa: C901 - a table
    rules: Rules, step: str, before: State, args: tuple[Any, ...], after: State, old: Facts
) -> Taken:
    """The steps of the proof: one, or none if nothing changes there, or more if several readers go at once."""
    for token in old["used"]:  # it was asked for, even if that is forgotten
        if not (isinstance(token, tuple) and token[0] in NOBODY):
            old["sent"][token, 0] = True
    if step in ("wait", "draw"):
        return [("wait", args)] if step == "wait" else []
    if step in ("expire", "evict"):
        had, has = ({key.token for key in rules.keys(one.masters[args[0]])} for one in (before, after))
        return [(step, (args[0], token)) for token in had - has]
    if step == "restart":
        return [("restart", (args[0], after.masters[args[0]].quarantined))]
    c, *rest = args
    if step == "arrive":
        return _arrived(rules, before, after, c, rest[0], old)
    client, then = before.clients[c], after.clients[c]
    t = client.token
    if step == "ask":
        return [("ask", (then.token, then.rounds[0].left, then.shared))]
    if step in ("settle", "give_up", "denied", "downgrade", "release", "crash"):
        return [(step, (t,))] if t is not None else []
    if step == "grant":
        return [("grant", (t, _majority(before, _those(old["vote"], t, 0)), then.left))]
    if step == "extend":
        return [("extend", (t, rest[0], then.rounds[-1].left, min(then.left, then.rounds[-1].left)))]
    if step == "extended":
        q = _majority(before, _those(old["vote"], t, rest[0]))
        return [("extended", (t, rest[0], q, then.left if then.left > client.left else 0))]
    if step == "repair":
        told = [one for one, later in zip(client.rounds, then.rounds, strict=True) if one.said != later.said]
        if not told:
            return []  # it was told before
        k = told[0].request.mark
        return [("repair", (t, k, _majority(before, _those(old["vote"], t, k))))]
    if step == "again":
        m, request = rest
        numbered = request.what in ("acquire", "extend")
        return [("again", (m, request.token, request.mark))] if numbered else []
    return []  # `lose`, `draw`, `leave_phantom`


def _arrived(rules: Rules, before: State, after: State, c: int, m: int, old: Facts) -> Taken:
    request, key = before.flight[c][m][0], after.masters[m].key
    t, said = request.token, getattr(rules, f"on_{request.what}")(before.masters[m], request)[1].said
    if request.what == "release":
        if (m, t) in old["key"] and key and key.token == ("released", t):
            return [("on_release_to_keep", (m, t, key.token, key.left))]
        return [("on_release", (m, t, t))]
    if said not in (*YES, "done"):
        return []
    mine = next(one for one in (key, *after.masters[m].readers) if one and one.token == t)
    shared = mine is not key
    if request.what == "acquire":
        return [("on_acquire", (m, t, mine.left, shared, True))]
    if request.what == "settle":
        return [("on_settle", (m, t, True))]
    if request.what == "extend":
        return [("on_extend", (m, t, request.mark, mine.left, shared, True))]
    number = next((k for (token, k), left in old["asked"].items() if (token, left) == (t, request.left)), 0)
    old["asked"].setdefault((t, number), request.left)  # its client may have forgotten which one it was
    return [("on_repair", (m, t, number, mine.left, shared))]


# -- P2 ------------------------------------------------------------------------------------------------------


def fenced_facts(state: State) -> Facts:
    facts: Facts = {name: {} for name in ("proposal", "stored", "last", "asking", "granted")}
    facts |= {"used": _used(state), "fence": {m: master.fence for m, master in enumerate(state.masters)}}
    facts["sent"] = {}
    for token, request, _ in _requests(state, "acquire", "settle"):
        at = token, int(request.what == "settle")
        facts["sent"][at], facts["proposal"][at] = True, request.fence
    for client in state.clients:
        token = client.token
        facts["asking"][token], facts["granted"][token] = (
            client.phase in ("asking", "settling"),
            client.phase == "holding",
        )
        if facts["asking"][token]:
            facts["last"][token] = int(client.phase == "settling")
        for asked in client.rounds:
            for m, reply in enumerate(asked.said):
                if reply and reply.said == "granted" and asked.request.what in ("acquire", "settle"):
                    facts["stored"][m, token, int(asked.request.what == "settle")] = True
    return facts


def fenced_steps(rules: Rules, step: str, before: State, args: tuple[Any, ...], after: State, old: Facts) -> Taken:
    if step == "draw":
        return [("draw", args)]
    if step in ("wait", "expire", "evict", "restart"):
        return []
    c, *rest = args
    t, then = before.clients[c].token, after.clients[c]
    if step == "ask":
        return [("ask", (then.token, then.rounds[0].request.fence))]
    if step == "settle":
        return [("settle", (t, rest[0]))]
    if step == "grant":
        return [("grant", (t, _majority(before, _those(old["stored"], t, old["last"][t]))))]
    if step in ("give_up", "crash", "leave_phantom"):
        return [("give_up", (t,))]
    if step != "arrive":
        return []
    m = rest[0]
    request = before.flight[c][m][0]
    said = getattr(rules, f"on_{request.what}")(before.masters[m], request)[1].said
    if request.what in ("acquire", "settle") and said == "granted":
        return [(f"on_{request.what}", (m, request.token))]
    changed = request.what in ("repair", "phantom") and before.masters[m].fence != after.masters[m].fence
    return [(f"on_{request.what}", (m, after.masters[m].fence))] if changed else []
