"""P1, P2 and P8 are proved for any number of masters, and a proof without one of its clauses is none."""

from __future__ import annotations

import pytest

from chaos import __main__ as chaos, prove
from chaos.explore import explore
from chaos.mutants import MUTANTS
from chaos.proof import confirmed
from chaos.proof.concrete import Concrete, Disallowed
from chaos.proof.logic import INSTALL
from chaos.scopes import SCOPES

pytestmark = pytest.mark.long

by_promise = pytest.mark.parametrize("proof", prove.PROOFS, ids=lambda one: one.promise)


@by_promise
def test_each_step_keeps_what_is_true(proof):
    for answer in prove.proved(proof):
        assert answer.said == ("sat" if answer.step == "possible" else "unsat"), answer


@by_promise
def test_each_clause_is_needed_or_said_not_to_be(proof):
    said = {clause: answer.said for clause, answer in prove.mutants(proof)}
    assert said == {clause: "unsat" if prove.elsewhere(proof, clause) else "sat" for clause in said}
    assert said.keys() >= {*proof.elsewhere, *proof.needs}


def test_what_is_confirmed_to_be_over_is_over_whatever_a_minority_of_clocks_does():
    """R35, for any number of masters; and each sentence that it rests on is needed."""
    for answer in confirmed.counted():
        assert answer.said == "unsat", answer
    for name, assumed in confirmed.LEMMAS.items():
        assert confirmed.lemma(name).said == "unsat"
        assert confirmed.possible(name).said == "sat"
        assert {without: confirmed.lemma(name, without).said for without in assumed} == dict.fromkeys(assumed, "sat")


def test_of_fewer_masters_the_sentences_on_sets_are_not_true():
    half, as_many_as_may_be_wrong = confirmed.counted(needed=1), confirmed.counted(witnesses=1)
    assert [answer.said for answer in half] == ["sat", "sat", "unsat"]
    assert [answer.said for answer in as_many_as_may_be_wrong] == ["unsat", "sat", "sat"]


def test_a_rule_that_is_left_out_is_told_as_a_story(capsys):
    assert chaos.main(["prove", "--break", "R21"]) == 0
    said = capsys.readouterr().out
    assert "P1 without on_acquire, R21: a quarantined master does not vote" in said
    assert "and no more is it true that: a master that votes keeps its word" in said


def test_without_the_solver_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(prove, "SOLVER", False)
    assert chaos.main(["prove"]) == prove._MISSING
    assert capsys.readouterr().out == INSTALL + "\n"


@pytest.mark.parametrize("name", SCOPES)
def test_each_step_of_a_small_world_is_one_that_the_proofs_allow(name):
    walk = prove.Walk(SCOPES[name])
    assert not explore(walk, most=1000).violation
    assert walk.proofs.compared > 1000


@pytest.mark.parametrize(("mutant", "why"), [
    ("minority", "R1: "),
    ("counts-from-the-answer", "R6: it ends with its request"),
    ("extension-brings-back", "R12: it is valid"),
    ("restarted-master-votes", "R21: until all has ended"),
    ("equal-is-greater", "R18: equal is not greater"),
])  # fmt: skip
def test_a_mutant_of_the_specification_takes_a_step_that_they_do_not(mutant, why):
    broken = MUTANTS[mutant]
    walk = prove.Walk(broken.scope)
    walk.rules = broken.rules(confirm=broken.scope.confirm)
    walk.proofs.rules = walk.rules
    with pytest.raises(Disallowed, match=why):
        explore(walk)


def test_a_master_that_removes_the_key_of_another_does_what_they_do_not_allow():
    rules = MUTANTS["release-without-owner-check"].rules()
    state = rules.arrive(rules.ask(rules.start(2), 0, "a", 1), 0, 0)
    state = rules.give_up(rules.arrive(rules.ask(state, 1, "b", 2), 1, 0), 1)
    with pytest.raises(Disallowed, match=r"key\(0, 'a'\) is False, and by the proof of P1 True"):
        Concrete(rules).exclusive("arrive", state, (1, 0), rules.arrive(state, 1, 0))
