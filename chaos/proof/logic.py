"""Formulas that a solver reads, and Python as well: the same text is proved, broken, and held against recorded steps.

A *proof* (`Proof`) has fields, which are its state, steps, which change it, and clauses, which are true in every state.  Who
reads a file of one needs no more than this: `every("master token", f)` is "for every master and token", `some` is
"there is one", `member(q, m)` is "master m is in majority q", and `must("R6", x)` is "by R6, this step is only taken
if x".  Three kinds of `Terms` give that a meaning:

- `Unlimited`: any number of masters, tokens and requests, and of majorities only that any two have a master in common;
- `Few`: so many of each.  Everything is written out, so the solver has an answer for certain, and finds small examples;
- `Seen`: numbers instead of formulas, of one step that was taken somewhere.
"""

from __future__ import annotations

import inspect
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Term: TypeAlias = Any  # a formula, a number, or what either is about
Master: TypeAlias = Term
Token: TypeAlias = Term  # an attempt, and the lease that comes of it; also what stands at a key that is nobody's
Number: TypeAlias = Term
Majority: TypeAlias = Term
Time: TypeAlias = Term
Yes: TypeAlias = Term
State: TypeAlias = Term
VALUES: Final = ("Number", "Time", "Yes", "Majority")
INSTALL: Final = "The proofs need the solver z3: python -m pip install z3-solver"

try:
    import z3
except ImportError:  # `Seen` needs none
    z3 = None
SOLVER: Final = z3 is not None


# -- words ---------------------------------------------------------------------------------------------------


def _plain(*terms: Term) -> bool:
    return all(isinstance(one, (bool, int, float)) for one in terms)


def both(*terms: Term) -> Term:
    """All of them are true."""
    if any(one is False for one in terms):
        return False
    terms = tuple(one for one in terms if one is not True)
    return z3.And(*terms) if terms else True


def either(*terms: Term) -> Term:
    """One of them is true, or more."""
    if any(one is True for one in terms):
        return True
    terms = tuple(one for one in terms if one is not False)
    return z3.Or(*terms) if terms else False


def no(term: Term) -> Term:
    return not term if isinstance(term, bool) else z3.Not(term)


def implies(condition: Term, then: Term) -> Term:
    return either(no(condition), then)


def choose(condition: Term, yes: Term, otherwise: Term) -> Term:
    if isinstance(condition, bool):
        return yes if condition else otherwise
    return z3.If(condition, yes, otherwise)


def same(one: Sequence[Term], other: Sequence[Term]) -> Term:
    return both(*(x is y or x == y for x, y in zip(one, other, strict=True)))


# -- states --------------------------------------------------------------------------------------------------


class Field:
    """What is known of each master, token, ...: ``field[m, t]``.  To set one is to have another field from then on."""

    def __init__(self, places: str, read: Callable[..., Term]) -> None:
        self.places, self.read = places, read

    def at(self, at: Term) -> tuple[Term, ...]:
        return at if self.places.count(" ") or not self.places else (at,)

    def __getitem__(self, at: Term) -> Term:
        return self.read(*self.at(at))

    def __setitem__(self, at: Term, value: Term) -> None:
        old, place = self.read, self.at(at)
        self.read = lambda *where: choose(same(where, place), value, old(*where))

    def become(self, new: Callable[..., Term]) -> None:
        """``new``: of a place, and of what was there."""
        old = self.read
        self.read = lambda *where: new(*where, old(*where))


class Fields:
    def __init__(self, fields: dict[str, Field]) -> None:
        self.__dict__.update(fields)

    def copy(self) -> Fields:
        return Fields({name: Field(field.places, field.read) for name, field in self.__dict__.items()})


class Proof:
    """``fields``: where there is one, what it is, and a sentence with it.  ``ghosts``: what nobody knows, and only the proof needs."""

    promise: ClassVar[str]
    title: ClassVar[str]
    fields: ClassVar[dict[str, tuple[str, str, str]]]
    ghosts: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[tuple[str, ...]]
    inductive: ClassVar[bool] = True  # or each step keeps the promise by itself
    elsewhere: ClassVar[dict[str, str]] = {}  # clauses that this promise does not need, and what needs them
    needs: ClassVar[tuple[str, ...]] = ()  # if there are any, all others are there for P1

    def __init__(self, terms: Term, without: str = "") -> None:
        self.every, self.some, self.member, self.terms = terms.every, terms.some, terms.member, terms
        self.without, self.step = without, ""
        self.clauses: list[str] = []  # all that were asked for
        self.allowed: list[Term] = []

    def rule(self, rule: str, term: Term) -> Term:
        """``term``, unless the rule is left out here."""
        clause = f"{self.step}, {rule}"
        self.clauses.append(clause)
        return True if clause == self.without else term

    def must(self, rule: str, term: Term) -> None:
        self.allowed.append(self.rule(rule, term))

    def refused(self) -> list[str]:
        """Of a step that was taken: which clauses are not true."""
        return [clause for clause, term in zip(self.clauses, self.allowed, strict=False) if term is False]

    def take(self, step: str, before: Fields, args: Sequence[Term]) -> tuple[Term, Fields]:
        """Whether the step may be taken, and what is then."""
        self.step, self.clauses, self.allowed = step, [], []
        after = before.copy()
        getattr(self, step)(after, *args)
        return both(*self.allowed), after

    def kinds(self, step: str) -> dict[str, str]:
        """What a step is about."""
        names = list(inspect.signature(getattr(type(self), step)).parameters.values())[2:]
        return {one.name: str(one.annotation) for one in names}

    def start(self, s: State) -> Term:
        raise NotImplementedError

    def invariant(self, s: State) -> Iterator[tuple[str, Term]]:
        raise NotImplementedError

    def promised(self, s: State) -> Term:
        raise NotImplementedError

    def kept(self, before: State, after: State, args: Sequence[Term]) -> Term:
        """... by a step alone."""
        raise NotImplementedError

    def scene(self, s: State) -> tuple[Term, ...]:
        """Of a small world: what is proved is not true for want of any state."""
        raise NotImplementedError


# -- what the words are about --------------------------------------------------------------------------------


class Unlimited:
    def __init__(self) -> None:
        self.sorts = {kind: z3.DeclareSort(kind) for kind in ("Master", "Token", "Majority")}
        self.sorts |= {"Number": z3.IntSort(), "Time": z3.RealSort(), "Yes": z3.BoolSort()}
        self._member = z3.Function("member", self.sorts["Majority"], self.sorts["Master"], z3.BoolSort())
        self._fresh = 0

    def constant(self, name: str, kind: str) -> Term:
        return z3.Const(name, self.sorts[kind])

    def field(self, name: str, places: str, kind: str) -> Field:
        if not places:
            made = self.constant(name, kind)
            return Field(places, lambda: made)
        return Field(
            places, z3.Function(name, *(self.sorts[one.capitalize()] for one in places.split()), self.sorts[kind])
        )

    def _bound(self, places: str) -> list[Term]:
        self._fresh += 1
        return [self.constant(f"{one[0]}{self._fresh}.{at}", one.capitalize()) for at, one in enumerate(places.split())]

    def every(self, places: str, term: Callable[..., Term]) -> Term:
        bound = self._bound(places)
        found = term(*bound)
        return found if isinstance(found, bool) else z3.ForAll(bound, found)

    def some(self, places: str, term: Callable[..., Term]) -> Term:
        return no(self.every(places, lambda *at: no(term(*at))))

    def member(self, q: Majority, m: Master) -> Term:
        return self._member(q, m)

    def meet(self) -> Term:
        """Any two majorities have a master in common (R1)."""
        q, r = z3.Consts("q r", self.sorts["Majority"])
        m = z3.Const("m", self.sorts["Master"])
        return z3.ForAll([q, r], z3.Exists([m], z3.And(self._member(q, m), self._member(r, m))))


class Few:
    """``numbers``: of requests of one token.  ``whole``: times are whole numbers, which are easier to read."""

    def __init__(
        self, masters: int = 3, tokens: int = 2, numbers: int = 3, *, minority: bool = False, whole: bool = False
    ) -> None:
        self.times = z3.Int if whole else z3.Real
        size = masters // 2 + (not minority)
        self.majorities = [frozenset(one) for one in combinations(range(masters), size)]
        self.sizes = {"master": masters, "token": tokens, "number": numbers, "majority": len(self.majorities)}
        self.limits: list[Term] = []  # that what is chosen is one of these

    def constant(self, name: str, kind: str) -> Term:
        made: Term = {"Time": self.times, "Yes": z3.Bool}.get(kind, z3.Int)(name)
        if kind.lower() in self.sizes:
            self.limits += [made >= 0, made < self.sizes[kind.lower()]]
        return made

    def field(self, name: str, places: str, kind: str) -> Field:
        size = [self.sizes[one] for one in places.split()]
        made = {at: self.constant(f"{name}{list(at)}", kind) for at in product(*map(range, size))}

        def read(*where: Term) -> Term:
            if all(isinstance(one, int) for one in where):
                return made[where]
            items = iter(made.items())
            found = next(items)[1]
            for at, value in items:
                found = choose(same(where, at), value, found)
            return found

        return Field(places, read)

    def _places(self, places: str) -> Iterator[tuple[int, ...]]:
        return product(*(range(self.sizes[one]) for one in places.split()))

    def every(self, places: str, term: Callable[..., Term]) -> Term:
        return both(*(term(*at) for at in self._places(places)))

    def some(self, places: str, term: Callable[..., Term]) -> Term:
        return either(*(term(*at) for at in self._places(places)))

    def member(self, q: Majority, m: Master) -> Term:
        return either(*(both(q == at, m in one) for at, one in enumerate(self.majorities)))


class Seen:
    """``places``: those that there are."""

    def __init__(self, **places: Sequence[Term]) -> None:
        self.places = places

    def every(self, places: str, term: Callable[..., Term]) -> bool:
        return all(term(*at) for at in product(*(self.places[one] for one in places.split())))

    def some(self, places: str, term: Callable[..., Term]) -> bool:
        return any(term(*at) for at in product(*(self.places[one] for one in places.split())))

    def member(self, q: Majority, m: Master) -> bool:
        return m in q
