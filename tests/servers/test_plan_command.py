"""``redlock-check --plan`` beside clients that change their masters step by step (R34)."""

from __future__ import annotations

import pytest

from redlock import Masters
from redlock._cli.check import main
from redlock.testing import LocalMasters
from tests.servers.look import eventually

OPTIONS = {"max_ttl": 1.5, "node_timeout": 0.4, "restart_guard": False}
NOW, LATER, NEVER = range(3)


@pytest.fixture(scope="module")
def six():
    with LocalMasters(6) as servers:
        yield {f"lock-{number}": url for number, url in enumerate(servers.urls, 1)}


@pytest.fixture
def using(six, request):
    """Clients with the masters of these numbers, and the same prefix."""
    made = []

    def use(*numbers, **options):
        prefix = f"{request.node.name}:"
        made.append(Masters({name: six[name] for name in named(*numbers)}, prefix=prefix, **(OPTIONS | options)))
        made[-1].status("job")
        return made[-1]

    yield use
    for masters in made:
        masters.close()


@pytest.fixture
def planned(six, request, capsys):
    """What the command ends with and prints, for a way from these masters to those."""

    def run(now, new):
        given = [f"{name}={six[name]}" for name in named(*now)]
        wanted = ",".join(f"{name}={six[name]}" for name in named(*new))
        code = main(["--prefix", f"{request.node.name}:", "--no-restart-guard", "--plan", wanted, *given])
        return code, capsys.readouterr().out

    return run


def named(*numbers):
    return [f"lock-{number}" for number in numbers]


def settled(planned, now, new, code):
    """Clients connect in the background: what it says then."""
    said: list[tuple[int, str]] = []

    def it_is_so():
        said[:] = [planned(now, new)]
        return said[0][0] == code

    eventually(it_is_so, 30)
    return said[0][1]


def test_a_plan_is_followed_to_its_end(using, planned):
    old, both, new = (1, 2, 3), (1, 2, 3, 4), (2, 3, 4)
    first = using(*old)
    text = settled(planned, old, new, NOW)
    assert "In use: one client has lock-1, lock-2, lock-3" in text
    assert text.index("Step 1 of 2: add lock-4") < text.index("Step 2 of 2: remove lock-1")

    second = using(*both)
    text = settled(planned, both, new, LATER)  # the first step is under way
    assert "Step 1 of 1: remove lock-1" in text
    assert "not yet: clients still have lock-1, lock-2, lock-3" in text

    first.close()
    assert "when: now" in settled(planned, both, new, NOW)

    using(*new)
    second.close()
    eventually(lambda: "Nothing is to be done" in planned(new, new)[1], 30)


def test_lists_that_do_not_go_together_are_refused(using, planned):
    """They only warn, so both work."""
    using(1, 2, 3, agreement="warn")
    assert "Step 1 of 4" in settled(planned, (1, 2, 3), (3, 4, 5), NOW)
    using(3, 4, 5, agreement="warn")
    text = settled(planned, (1, 2, 3), (3, 4, 5), NEVER)
    assert text.startswith("REFUSED: clients use masters that do not go together already")
    assert "only they have lock-4, lock-5" in text or "only we have lock-4, lock-5" in text


def test_who_checks_takes_no_part_in_the_fleet(six, using, capsys, request):
    """Its real lock is no client's: a wrong list is a finding, and not refused."""
    used = using(1, 2, 3)
    eventually(lambda: used.check(probe=False).fleet, 30)
    wrong = [f"{name}={six[name]}" for name in named(3, 4, 5)]
    main(["--prefix", f"{request.node.name}:", "--no-restart-guard", *wrong])
    said = capsys.readouterr().out
    assert "A real lock was acquired, extended and released" in said
    assert "do not go with ours" not in said
    assert [one.masters for one in used.check(probe=False).fleet] == [("lock-1", "lock-2", "lock-3")]
