"""P1, P2 and P8 are proved for any number of masters, and a proof without one of its clauses is none."""

from __future__ import annotations

import pytest

from chaos import __main__ as chaos, prove
from chaos.proof.logic import INSTALL

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


def test_a_rule_that_is_left_out_is_told_as_a_story(capsys):
    assert chaos.main(["prove", "--break", "R21"]) == 0
    said = capsys.readouterr().out
    assert "P1 without on_acquire, R21: a quarantined master does not vote" in said
    assert "and no more is it true that: who votes keeps its word" in said


def test_without_the_solver_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(prove, "SOLVER", False)
    assert chaos.main(["prove"]) == prove._MISSING
    assert capsys.readouterr().out == INSTALL + "\n"
