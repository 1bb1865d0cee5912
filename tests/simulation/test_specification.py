"""The specification keeps its promises in every state of small worlds, and each mutant of it breaks one."""

from __future__ import annotations

import pytest

from chaos.explore import BROKEN, EACH, explore, explorer_of
from chaos.specification import Forbidden, Request, Rules

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", EACH)
def test_the_promises_are_kept(name):
    found = explore(explorer_of(EACH[name]))
    assert (found.violation, found.complete) == ("", True), found.path
    assert found.states > 400


@pytest.mark.parametrize("name", BROKEN)
def test_a_mutant_breaks_the_promise_that_its_rule_is_there_for(name):
    mutant = BROKEN[name]
    found = explore(explorer_of(mutant.scope, mutant.rules))
    assert found.violation.startswith(mutant.breaks), found
    assert found.path


def scene():
    """One client holds, by the votes of two masters; the third has not been reached yet."""
    rules = Rules()
    state = rules.ask(rules.start(2), 0, "a", 7)
    return rules, rules.grant(rules.arrive(rules.arrive(state, 0, 0), 0, 1), 0)


@pytest.mark.parametrize(("rule", "step"), [
    ("R9", lambda rules, state: rules.ask(state, 0, "b", 8)),
    ("R1", lambda rules, state: rules.grant(rules.arrive(rules.ask(state, 1, "b", 8), 1, 2), 1)),
    ("R7", lambda rules, state: rules.grant(rules.wait(rules.arrive(rules.arrive(rules.ask(rules.start(1), 0, "b", 8), 0, 0), 0, 1), 6), 0)),
    ("R12", lambda rules, state: rules.extend(rules.wait(state, 10), 0, 1)),
    ("R6", lambda rules, state: rules.expire(rules.wait(state, 9), 0)),
    ("R10", lambda rules, state: rules.lose(rules.release(state, 0), 0, 0)),
    ("R10", lambda rules, state: rules.again(rules.arrive(rules.release(state, 0), 0, 0), 0, 0, Request("acquire", "a"))),
    ("R12", lambda rules, state: rules.again(rules.extend(rules.extend(state, 0, 1), 0, 2), 0, 0, Request("extend", "a", mark=1))),
    ("R12", lambda rules, state: rules.again(rules.extend(state, 0, 1), 0, 2, Request("acquire", "a"))),
    ("R13", lambda rules, state: rules.denied(rules.extend(state, 0, 1), 0, 1)),
    ("R14", lambda rules, state: rules.repair(rules.extend(state, 0, 1), 0, 2)),
    ("R17", lambda rules, state: rules.settle(rules.ask(state, 1, "b", 8), 1, 9)),
    ("R35", lambda rules, state: rules.leave_phantom(rules.ask(state, 1, "b", 8), 1, 9)),
])  # fmt: skip
def test_a_step_that_a_rule_forbids(rule, step):
    with pytest.raises(Forbidden) as caught:
        step(*scene())
    assert caught.value.rule == rule
