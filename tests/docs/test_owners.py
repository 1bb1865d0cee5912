"""Every promise, rule and corner case has one owner, and a broken variant that turns that red."""

from __future__ import annotations

from chaos.history import MUST
from chaos.scenarios import SCENARIOS
from chaos.variants import VARIANTS
from tests.docs.owners import CHAOS, PAGE, breaks, marked, table, turned_red, written
from tests.docs.test_rules import defined

REAL = ("witness", "servers", "commands", "fenced", "adapters", "compat", "compose")


def test_each_rule_has_one_owner_that_a_broken_variant_turns_red():
    owners, broken = marked("proves"), breaks()
    assert {rule: owners[rule] for rule in defined() if len(owners[rule]) != 1} == {}
    assert [rule for rule in defined() if turned_red(owners[rule][0], rule, broken) is None] == []
    assert {*owners} <= {*defined()}


def test_each_rule_has_at_most_one_witness_and_that_has_real_servers():
    witnesses = marked("witness")
    assert {rule: found for rule, found in witnesses.items() if len(found) != 1} == {}
    assert [where for [where] in witnesses.values() if where.partition("/")[0] not in REAL] == []
    assert {*witnesses} <= {*defined()}


def test_chaos_has_what_the_table_says():
    assert {*CHAOS.values()} <= {*MUST, *SCENARIOS, *VARIANTS}
    assert {*CHAOS} <= {*defined()}


def test_the_table_is_that_of_the_marks():
    text = PAGE.read_text(encoding="utf-8")
    assert written(text) == text, "python -m tests.docs.owners"
    assert table() in text
