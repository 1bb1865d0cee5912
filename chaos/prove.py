"""``redlock-chaos prove``: P1, P2 and P8 for any number of masters and clients, by a solver; and what breaks without which rule."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from .explore import Explorer, Left, Next, explore
from .proof.concrete import Concrete
from .proof.exclusive import Exclusive
from .proof.fenced import Fenced, Forgetful
from .proof.foreign import Foreign
from .proof.logic import INSTALL, SOLVER, Few
from .scopes import SCOPES, Scope, Small, left_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from .proof.logic import Proof
    from .proof.solver import Answer
    from .specification import State

PROOFS: Final[tuple[type[Proof], ...]] = (Exclusive, Fenced, Forgetful, Foreign)
R35: Final = "R35"  # no proof, but what it rests on
_BROKEN, _MISSING = 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prove promises for any number of masters and clients; then leave out each clause of each rule, one at a time.  "
        "Exit 0: all is proved, and what the proofs need is found to be needed; 1: not so; 2: the solver is missing."
    )
    parser.add_argument("--break", dest="broken", metavar="RULE", help="show what happens without it: R12 for example")
    parser.add_argument("--seen", action="store_true", help="is each step of small worlds one that P1 and P2 allow?")
    parser.add_argument(
        "--only", choices=[*(one.promise for one in PROOFS), R35], metavar="PROMISE", help="P1 for example"
    )


def main(args: argparse.Namespace) -> int:
    if args.seen:
        return _see()
    if not SOLVER:
        print(INSTALL)
        return _MISSING
    proofs = [one for one in PROOFS if args.only in (None, one.promise)]
    if args.broken:
        return _tell(proofs, args.broken)
    began, right = time.process_time(), True
    for proof in proofs:
        print(f"{proof.promise}: {proof.title}")
        for answer in proved(proof):
            expected = "sat" if answer.step == "possible" else "unsat"
            right = right and answer.said == expected
            word = "proved" if answer.step != "possible" else "is so"
            print(
                f"  {answer.step:<20}{word if answer.said == expected else answer.said:<8}{answer.seconds:6.2f}",
                flush=True,
            )
    for proof in proofs:
        print(f"{proof.promise}, with a clause left out:")
        for clause, answer in mutants(proof):
            needs = elsewhere(proof, clause)
            right = right and answer.said == ("unsat" if needs else "sat")
            word = {"sat": "breaks", "unsat": "is kept"}.get(answer.said, answer.said)
            said = f"  [{needs}]" if needs else ""
            print(f"  {word:<8}{answer.seconds:6.2f}  {clause}{said}", flush=True)
    if args.only in (None, R35):
        right = _confirmed() and right
    print(f"{'all as it should be' if right else 'NOT PROVED'}, {time.process_time() - began:.1f} s")
    return 0 if right else _BROKEN


def _confirmed() -> bool:
    """What R35 rests on, and each sentence of it left out."""
    from .proof import confirmed  # noqa: PLC0415

    print(
        f"{R35}: a lease that a dismissal or a phantom takes for ended has ended, whatever a minority of clocks does."
    )
    right = True
    for answer in (*confirmed.counted(), *map(confirmed.lemma, confirmed.LEMMAS)):
        right = right and answer.said == "unsat"
        print(
            f"  {'proved' if answer.said == 'unsat' else answer.said:<8}{answer.seconds:6.2f}  {answer.step}",
            flush=True,
        )
    for name, said in confirmed.LEMMAS.items():
        print(f"{R35}, {name}, with a sentence left out:")
        for without in said:
            answer = confirmed.lemma(name, without)
            right = right and answer.said == "sat"
            word = "breaks" if answer.said == "sat" else answer.said
            print(f"  {word:<8}{answer.seconds:6.2f}  {without}", flush=True)
    return right


def proved(proof: type[Proof]) -> Iterator[Answer]:
    """Each step of it; ``unknown`` is none of the answers that count."""
    from .proof.solver import POSSIBLE, PROMISE, START, Question  # noqa: PLC0415 - without z3 there is none

    question = Question(proof)
    for step in (START, PROMISE, *proof.steps) if proof.inductive else proof.steps:
        yield question.ask(step)
    if proof.inductive:
        yield Question(proof, Few()).ask(POSSIBLE)


def elsewhere(proof: type[Proof], clause: str) -> str:
    """What needs a clause that the proof does not: then leaving it out changes nothing, for any number of masters."""
    return proof.elsewhere.get(clause, "P1" if proof.needs and clause not in proof.needs else "")


def mutants(proof: type[Proof], rule: str = "", *, tell: bool = False) -> Iterator[tuple[str, Answer]]:
    from .proof.solver import MEET, Question  # noqa: PLC0415

    whole = Question(proof, Few())
    clauses = [(step, clause) for step in proof.steps for clause in whole.clauses(step)]
    for step, clause in [*([("promise", MEET)] if proof.inductive else []), *clauses]:
        if rule in ("", clause.partition(", ")[2].partition(":")[0]):
            few = None if elsewhere(proof, clause) else Few(minority=clause == MEET, whole=tell)
            yield clause, Question(proof, few, clause).ask(step, tell=tell and few is not None)


def _tell(proofs: list[type[Proof]], rule: str) -> int:
    found = False
    for proof in proofs:
        for clause, answer in mutants(proof, rule, tell=True):
            found = True
            print(f"\n{proof.promise} without {clause}")
            kept = f"  is kept; it is there for {elsewhere(proof, clause)}"
            print(*answer.story or [kept if answer.said == "unsat" else answer.said], sep="\n", flush=True)
    if not found:
        print(f"No proof rests on {rule}.")
    return 0 if found else _MISSING


class Walk(Explorer):
    """Holds each step that is taken in a small world against the proofs, once."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(Small(confirm=scope.confirm), scope)
        self.proofs = Concrete(self.rules)
        self._seen: set[int] = set()

    def following(self, state: State, left: Left) -> Iterator[Next]:
        for path, after, remains in super().following(state, left):
            now = state
            for words in path:
                now = self._take(now, left, *words.split())
            if now != after:
                raise RuntimeError(path)
            yield path, after, remains

    def _take(self, now: State, left: Left, step: str, *words: str) -> State:
        args: tuple[Any, ...] = tuple(int(word) for word in words if word.isdigit())
        heard = {"heard": False} if step == "unheard" else {}
        if step == "ask":
            c, proposal = args
            args = c, self.rules.token(c, self.scope.attempts[c] - left.attempts[c]), proposal
        elif step == "extend":
            args = (*args, *self.scope.ttls)
        elif step == "wait":
            args = (min(one for one in left_of(now) if one > 0),)
        step = "arrive" if heard else step
        after: State = getattr(self.rules, step)(now, *args, **heard)
        if (key := hash((step, args, now, after))) not in self._seen:
            self._seen.add(key)
            if not self.scope.confirm:  # else keys go early, and P1 rests on R35, which is not proved
                self.proofs.exclusive(step, now, args, after)
            if self.scope.fences:
                self.proofs.fenced(step, now, args, after)
        return after


def _see() -> int:
    for scope in SCOPES.values():
        walk = Walk(scope)
        explore(walk)
        print(f"{walk.proofs.compared:>9,} steps of {scope.name} are allowed: {scope.what}", flush=True)
    return 0
