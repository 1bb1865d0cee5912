"""The questions, as the solver gets them: is there a state in which all clauses are true, and a step out of it after which one is not?

There is none (`unsat`): the step keeps what is true.  So it is true from the start on, however many steps are taken.
A *mutant* is a proof with one clause of a rule left out; there the solver has to find such a step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import product, takewhile
from typing import TYPE_CHECKING, Any, Final

import z3

from .logic import Few, Fields, Proof, Term, Unlimited, both, no

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 20  # for a question; whose answer is `unknown` then
MEET: Final = "promise, R1: any two majorities have a master in common"
START, PROMISE, POSSIBLE = "start", "promise", "possible"
NAMES: Final = {"master": "ABCDEFG", "token": ("ann", "ben", "cid"), "number": "0123456789"}


@dataclass
class Answer:
    """``said``: of the solver.  ``story``: of what it found."""

    step: str
    said: str
    seconds: float
    story: tuple[str, ...] = ()


class Question:
    """About one proof: in any world or, with ``few``, in a small one.  ``without``: a clause that is left out."""

    def __init__(self, of: type[Proof], few: Few | None = None, without: str = "") -> None:
        self.terms: Any = few
        if few is None:
            self.terms = Unlimited()
        self.proof = of(self.terms, without)
        self.before = Fields({name: self.terms.field(name, *what[:2]) for name, what in of.fields.items()})
        self.assumed: list[Any] = [] if few or without == MEET else [self.terms.meet()]
        self.true = [term for _, term in self.proof.invariant(self.before)]

    def clauses(self, step: str) -> list[str]:
        self._taken(step)
        return self.proof.clauses

    def ask(self, step: str, *, tell: bool = False) -> Answer:
        before, proof = self.before, self.proof
        if step == START:
            return self._solve(step, proof.start(before), no(both(*self.true)))
        if step == PROMISE:
            return self._solve(step, *self.true, no(proof.promised(before)), tell=before if tell else None)
        if step == POSSIBLE:
            return self._solve(step, *self.true, *proof.scene(before))
        allowed, after, args = self._taken(step)
        kept = (
            both(*(term for _, term in proof.invariant(after))) if proof.inductive else proof.kept(before, after, args)
        )
        return self._solve(step, *self.true, allowed, no(kept), tell=after if tell else None, args=args)

    def _taken(self, step: str) -> tuple[Term, Fields, list[Term]]:
        args = [self.terms.constant(name, kind) for name, kind in self.proof.kinds(step).items()]
        return (*self.proof.take(step, self.before, args), args)

    def _solve(self, step: str, *terms: Term, tell: Fields | None = None, args: list[Term] = []) -> Answer:  # noqa: B006
        solver = z3.Optimize() if tell else z3.Solver()
        solver.set("timeout", SECONDS * 1000)
        limits = self.terms.limits if isinstance(self.terms, Few) else []
        solver.add(*(z3.BoolVal(one) if isinstance(one, bool) else one for one in (*self.assumed, *terms, *limits)))
        for name, (places, kind, _) in self.proof.fields.items() if tell else ():  # as little as possible
            for at in self._places(places):
                term = getattr(self.before, name).read(*at)
                solver.add_soft(z3.Not(term) if kind == "Yes" else term == 0)
        began = time.process_time()
        said = solver.check()
        seconds = time.process_time() - began
        story = tuple(self._story(step, solver.model(), tell, args)) if tell and said == z3.sat else ()
        return Answer(step, str(said), seconds, story)

    # -- what was found ------------------------------------------------------------------------------------

    def _places(self, places: str) -> Iterator[tuple[int, ...]]:
        return product(*(range(self.terms.sizes[one]) for one in places.split()))

    def _story(self, step: str, model: Term, after: Fields, args: list[Term]) -> Iterator[str]:
        facts = self._facts(model, self.before)
        yield from (f"  {fact}" for fact in facts)
        if step != PROMISE:
            said = [
                f"{name} = {self._shown(model, term, kind)}"
                for (name, kind), term in zip(self.proof.kinds(step).items(), args, strict=True)
            ]
            yield f"then {step}: {', '.join(said)}"
            yield from (f"  {fact}" for fact in self._facts(model, after) if fact not in facts)
        for what, term in self.proof.invariant(after) if step != PROMISE and self.proof.inductive else ():
            if self._value(model, term) is False:
                yield f"and no more is it true that: {what}"
                return
        yield f"and {self.proof.promise} is broken: {self.proof.title}"

    def _facts(self, model: Term, state: Fields) -> list[str]:
        found: list[str] = []
        fields = list(self.proof.fields.items())
        for first, (name, (places, kind, text)) in enumerate(fields):
            if text.startswith("..."):
                continue
            for at in self._places(places):
                if not self._value(model, getattr(state, name).read(*at)):
                    continue
                more = takewhile(lambda field: field[1][2].startswith("..."), fields[first + 1 :])
                shown = [NAMES[one][i] for one, i in zip(places.split(), at, strict=True)]
                fact = [
                    words.removeprefix("... ").format(*shown, self._shown(model, getattr(state, other).read(*at), its))
                    for other, (_, its, words) in [(name, (places, kind, text)), *more]
                    if its != "Yes" or self._value(model, getattr(state, other).read(*at))
                ]
                found.append(" ".join(fact))
        return found

    def _value(self, model: Term, term: Term) -> Term:
        if not z3.is_expr(term):
            return term
        value = model.eval(term, model_completion=True)
        if z3.is_bool(value):
            return z3.is_true(value)
        return value.as_long() if z3.is_int_value(value) else float(value.as_fraction())

    def _shown(self, model: Term, term: Term, kind: str) -> str:
        value = self._value(model, term)
        if kind == "Majority":
            return "".join(NAMES["master"][m] for m in sorted(self.terms.majorities[value]))
        if kind.lower() in NAMES:
            return NAMES[kind.lower()][int(value)] if 0 <= value < len(NAMES[kind.lower()]) else str(value)
        return f"{value:g}" if kind == "Time" else "yes" if value else "no"
