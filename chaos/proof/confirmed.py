"""R35: who may be confirmed to be over, is over, whatever a minority of clocks does.

No invariant, as the other proofs have one: two questions about one lease T, of whose last won round a majority has been told, and one
client that believes that T has ended.  The first is about a *dismissal*: f + 1 masters show the same extension of T as run
out.  The second is about a *phantom* that was left because they did not, and has run out on f + 1 masters.  What a master has on record,
and that only T's own release, a dismissal or a phantom takes it away, is assumed; `explore` follows that in small worlds.

Of sets of masters only this is used: two majorities meet, f + 1 masters meet each majority, and one of them has a right clock.
`counted` asks that of N masters, for any N.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import z3

from .solver import SECONDS, Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

Said = dict[str, Any]  # what is assumed, by the words for it

_Master, _Majority, _Witnesses = (z3.DeclareSort(name) for name in ("Master", "Majority", "Witnesses"))
_m, _q, _p, _w, _r = (
    z3.Const("m", _Master), z3.Const("q", _Majority), z3.Const("p", _Majority), z3.Const("w", _Witnesses), z3.Int("r"),
)  # fmt: skip


def _function(name: str, *sorts: Any) -> Any:
    return z3.Function(name, *sorts)


_of = _function("of", _Majority, _Master, z3.BoolSort())
_among = _function("among", _Witnesses, _Master, z3.BoolSort())
_wrong = _function("wrong", _Master, z3.BoolSort())  # lets the key in question go before its time
_last = _function("last", _Master, z3.IntSort())  # the round of T that it has on record: 0 the acquire, then extensions
_sent = _function("sent", z3.IntSort(), z3.RealSort())
_ttl = _function("ttl", z3.IntSort(), z3.RealSort())
_done = _function("done", _Master, z3.IntSort(), z3.RealSort())  # when it carried a round out
_until, _now, _asked, _phantom = z3.Reals("until now asked phantom")
_won, _shown = z3.Ints("won shown")
_granting, _settled = z3.Consts("granting settled", _Majority)
_seen = z3.Const("seen", _Witnesses)

# Of each lease, and of each client.
LEASE: Final[Said] = {
    "R35: no more than f clocks are wrong": z3.ForAll([_w], z3.Exists([_m], z3.And(_among(_w, _m), z3.Not(_wrong(_m))))),
    "R12: a majority has carried out the last round that was won": z3.ForAll([_m], z3.Implies(_of(_granting, _m), _last(_m) >= _won)),
    "R6, C6: it is valid no longer than any round since, from its sending": z3.ForAll(
        [_r], z3.Implies(_r >= _won, _until <= _sent(_r) + _ttl(_r))
    ),
    "R6: no master carries out what was not sent": z3.ForAll([_m, _r], z3.Implies(_r <= _last(_m), _done(_m, _r) >= _sent(_r))),
}  # fmt: skip

DISMISSAL: Final[Said] = {
    "R1: two majorities meet": z3.ForAll([_q, _p], z3.Exists([_m], z3.And(_of(_q, _m), _of(_p, _m)))),
    "R35: f + 1 masters show one extension, which they had carried out": z3.ForAll(
        [_m], z3.Implies(_among(_seen, _m), _last(_m) >= _shown)
    ),
    "R35: ... whose key is gone": z3.ForAll(
        [_m], z3.Implies(z3.And(_among(_seen, _m), z3.Not(_wrong(_m))), _now >= _done(_m, _shown) + _ttl(_shown))
    ),
    "R35: a majority is settled where just that is on record": z3.ForAll(
        [_m], z3.Implies(z3.And(_of(_settled, _m), _of(_granting, _m)), _last(_m) == _shown)
    ),
}  # fmt: skip

PHANTOM: Final[Said] = {
    "R35: f + 1 masters meet each majority": z3.ForAll([_q, _w], z3.Exists([_m], z3.And(_of(_q, _m), _among(_w, _m)))),
    "R35: it is sent when all have answered, and stands where what they showed is still on record": z3.ForAll(
        [_m], z3.Implies(_among(_seen, _m), _done(_m, _last(_m)) <= _asked)
    ),
    "R35: it lasts as long as the longest that was shown": z3.ForAll(
        [_m], z3.Implies(_among(_seen, _m), _phantom >= _ttl(_last(_m)))
    ),
    "R35: ... and is gone on f + 1 masters": z3.ForAll(
        [_m], z3.Implies(z3.And(_among(_seen, _m), z3.Not(_wrong(_m))), _now >= _asked + _phantom)
    ),
}  # fmt: skip
LEMMAS: Final = {
    "a dismissed lease has ended": {**LEASE, **DISMISSAL},
    "a lease that a phantom hides has ended": {**LEASE, **PHANTOM},
}


def lemma(name: str, without: str = "") -> Answer:
    """``unsat``: there is no such lease that is still valid; with ``without`` left out of what is assumed."""
    return _asked_of(name, *_assumed(name, without), _now < _until)


def possible(name: str) -> Answer:
    """``sat``: what is assumed can be so."""
    return _asked_of("possible", *_assumed(name), _now >= _until)


def _assumed(name: str, without: str = "") -> list[Any]:
    return [term for said, term in LEMMAS[name].items() if said != without]


def counted(*, needed: int = 0, witnesses: int = 0) -> Iterator[Answer]:
    """The sentences on sets, of any number of masters; or with so many fewer needed, or so many fewer witnesses."""
    n, need, f, common = z3.Ints("n need f common")
    sizes = (n >= 1, need == n / 2 + 1 - needed, f == n - (n / 2 + 1), common >= 0)
    for name, one, two in (
        ("R1: two majorities meet", need, need),
        ("R35: f + 1 masters meet each majority", f + 1 - witnesses, need),
        ("R35: no more than f clocks are wrong", f + 1 - witnesses, n - f),
    ):
        yield _asked_of(name, *sizes, common >= one + two - n, common == 0)


def _asked_of(step: str, *terms: Any) -> Answer:
    solver = z3.Solver()
    solver.set("timeout", SECONDS * 1000)
    solver.add(*terms)
    began = time.process_time()
    said = solver.check()
    return Answer(step, str(said), time.process_time() - began)
