"""The clocks of a minority are wrong, or it loses lock keys, and no second client is granted the name (R35).

Each play is told step by step, for chance finds it rarely: what clients send arrives on masters in this order, and a lock
key goes when the play says so.  The decision is that of `expiry`.  In `test_confirmed.py` clients run by themselves.
"""

from __future__ import annotations

from tests.bench import scene
from tests.simulation.master import ENGINE

TTL = 30.0
HOUR = 3600.0


class Stage:
    """The masters, and what clients send them.  Time does not pass: a lock key goes when the play says so."""

    def __init__(self, at, names):
        self.masters = [server.master for server in at.servers]
        for master in self.masters:
            master.tick()
        self.need = len(self.masters) // 2 + 1
        self.records, self._expiry = at.library["_core.confirm.records"], at.library["_core.confirm.expiry"]
        self.keys = at.library["_core.wire"].keys_for("redlock:", list(names), records=True)

    def _run(self, call, masters):
        """Not on behalf of a process, so the judge does not look."""
        script, keys, args = call.script, list(call.keys), list(call.args)
        return {one: ENGINE.run(script.name, script.text, self.masters[one], keys, args) for one in masters}

    # -- what clients send ---------------------------------------------------------------------------

    def acquire(self, token, fence, *masters):
        return self._run(self.records.acquire(self.keys, token, TTL, fence, HOUR), masters)

    def extend(self, token, mark, fence, *masters):
        answers = self._run(self.records.extend(self.keys, token, TTL, HOUR, mark, fence), masters)
        return [answer == [1] for answer in answers.values()]

    def repair(self, token, fence, *masters):
        answers = self._run(self.records.repair(self.keys, token, TTL, fence, HOUR), masters)
        return [answer == [1] for answer in answers.values()]

    def release(self, token, fence, *masters, keep=0.0):
        self._run(self.records.release(self.keys, token, keep, fence), masters)

    def settle(self, token, fence, shown, *masters, phantom=False):
        call = self.records.confirm(self.keys, token, TTL, fence, HOUR, list(shown), phantom=phantom)
        return [answer[0] == 1 for answer in self._run(call, masters).values()]

    # -- what becomes of it --------------------------------------------------------------------------

    def gone(self, *masters):
        """The lock keys end: in time, or because a clock is wrong, or because a master loses them."""
        for master in masters:
            for key in self.keys.locks:
                self.masters[master].keys.pop(key, None)

    def verdict(self, answers):
        """What the client makes of ``answers``, if the other masters never answer."""
        return self._judge(answers).verdict

    def granted(self, token, fence, answers):
        """Whether these ``answers`` end in a grant: the second round goes to those that have not refused."""
        found, clean = self._judge(answers), [master for master, answer in answers.items() if answer[0] in (1, 2)]
        if found.verdict == "confirmed" or (found.verdict == "clean" and any(answers[one][0] == 2 for one in clean)):
            names = range(len(self.keys.locks))
            may = [{f"{mark} {whose}" for which, mark, whose in found.over if which == name} for name in names]
            return sum(self.settle(token, fence, may, *clean, *self._shown(answers))) >= self.need
        return bool(found.verdict == "clean")

    def _judge(self, answers):
        clean = sum(answer[0] in (1, 2) for answer in answers.values())
        return self._expiry.judge(len(self.masters), clean, self._shown(answers), 0)

    def _shown(self, answers):
        read = {master: self.records.read_flagged(answer) for master, answer in answers.items()}
        return {master: flagged[1] for master, flagged in read.items() if flagged is not None}


def play(masters=3, *names):
    """A scene of these masters, and of a lock of these names."""

    def decorate(told):
        def steps(at):
            yield from at.nothing()
            told(Stage(at, names or ("a",)))

        steps.__name__, steps.__doc__ = told.__name__, told.__doc__
        return scene(worlds=["threads"], masters=masters)(steps)

    return decorate


@play(5)
def test_an_extension_that_misses_two_of_five(stage):
    """Then one wrong clock would be enough: that of 2."""
    stage.acquire("A", 10, 0, 1, 2, 3, 4)
    stage.extend("A", "1", 10, 0, 1, 2)
    stage.gone(3, 4, 2)
    assert not stage.granted("B", 21, stage.acquire("B", 20, 2, 3, 4))


@play()
def test_answers_that_are_not_of_one_moment(stage):
    """0 has told C that A holds it; then A ends, B is granted by 0 and 1, and 1 loses the key of B."""
    stage.acquire("A", 10, 0, 1)
    asked = stage.acquire("C", 30, 0, 2)
    assert asked[0][0] == 0
    stage.release("A", 10, 0, 1)
    assert stage.granted("B", 20, stage.acquire("B", 20, 0, 1))
    stage.gone(1)
    assert not stage.granted("C", 31, asked | stage.acquire("C", 30, 1))


@play()
def test_a_rollback_takes_nothing_off_the_record(stage):
    """A failed attempt proposed a greater fence than that of the lease that lives."""
    stage.acquire("A", 10, 0, 1)
    stage.gone(1)
    assert stage.verdict(stage.acquire("B", 20, 0, 1, 2)) == "doubt"
    stage.release("B", None, 0, 1, 2)
    assert not stage.granted("C", 31, stage.acquire("C", 30, 1, 2))


@play()
def test_two_clients_that_are_shown_the_same_by_the_same_masters(stage):
    """A is over, and only one of B and C may have its name."""
    stage.acquire("A", 10, 0, 1, 2)
    stage.gone(0, 1, 2)
    b, c = stage.acquire("B", 20, 0, 1), stage.acquire("C", 30, 0, 1)
    assert stage.granted("B", 31, b)
    assert not stage.granted("C", 32, c)


@play()
def test_an_extension_on_a_master_that_was_given_the_key_back(stage):
    """A on 0 and 1; 2 is repaired; 0 restarts empty, and votes again when its quarantine is over; the clock of 2 steps."""
    stage.acquire("A", 10, 0, 1)
    stage.extend("A", "1", 10, 0, 1)
    assert stage.repair("A", 10, 2) == [True]
    stage.masters[0].keys.clear()
    assert stage.extend("A", "2", 10, 1, 2) == [True, True]
    stage.gone(2)
    assert not stage.granted("B", 21, stage.acquire("B", 20, 0, 2))


def _in_flight(stage, meanwhile):
    """X asks 1, which loses its key.  T has the name meanwhile, and ends.  Then X gets its last vote, and Y asks 1 and 2."""
    x = stage.acquire("X", 50, 1)
    stage.gone(1)
    assert stage.granted("T", 20, stage.acquire("T", 20, 0, 1, 2))
    stage.extend("T", "1", 20, 0, 1, 2)
    meanwhile()
    stage.release("T", 20, 0, 1, 2)
    assert stage.granted("X", 51, x | stage.acquire("X", 50, 0))
    assert not stage.granted("Y", 61, stage.acquire("Y", 60, 1, 2))


@play()
def test_a_release_takes_only_what_is_older_off_the_record(stage):
    """The record of X has a greater fence than T, and stays when T ends."""
    _in_flight(stage, lambda: None)


@play()
def test_a_key_is_not_given_back_where_another_client_is_on_record(stage):
    def meanwhile():
        stage.repair("T", 20, 1)
        stage.extend("T", "2", 20, 0, 1, 2)

    _in_flight(stage, meanwhile)


@play(5)
def test_a_phantom_that_comes_late(stage):
    """The clocks of 2 and 3 are wrong.  The phantom comes to 2 nearly a TTL later than to 4; there T was repaired and extended."""
    stage.acquire("T", 10, 0, 1, 2, 3)
    stage.gone(2)
    stage.extend("T", "1", 10, 0, 1, 3)
    stage.gone(3)
    assert stage.verdict(stage.acquire("B", 20, 2, 3, 4)) == "doubt"
    shown = [{"0 T", "1 T"}]
    assert stage.settle("B", 21, shown, 4, 3, phantom=True) == [True, True]
    stage.repair("T", 10, 2)
    assert stage.extend("T", "2", 10, 0, 1, 2) == [True] * 3
    stage.gone(2)
    stage.settle("B", 21, shown, 2, phantom=True)
    stage.gone(2, 3, 4)
    assert not stage.granted("C", 41, stage.acquire("C", 40, 2, 3, 4))


@play()
def test_a_fence_key_that_is_lost(stage):
    """An old lease X is released late; the fence key of 0 is gone, and the record of A is not."""
    stage.acquire("A", 11, 0, 1)
    stage.gone(0)
    del stage.masters[0].keys[stage.keys.fences[0]]
    stage.release("X", 10, 0, 2)
    assert not stage.granted("B", 21, stage.acquire("B", 20, 0, 2))


@play()
def test_a_fence_that_was_never_raised(stage):
    """2 has the key of A by a repair, and its record by an extension.  C, an old lease, has a greater fence than is there."""
    stage.acquire("A", 25, 0, 1)
    stage.repair("A", 25, 2)
    stage.masters[2].keys[stage.keys.fences[0]].value = "20"
    stage.masters[1].keys.clear()
    stage.extend("A", "1", 25, 0, 2)
    stage.gone(2)
    stage.release("C", 22, 1, 2)
    assert not stage.granted("B", 31, stage.acquire("B", 30, 1, 2))


@play()
def test_an_earlier_extension_that_comes_late(stage):
    """The second extension came to 0 and 2, and the first one to 1; then it comes to 0, late."""
    stage.acquire("A", 10, 0, 1, 2)
    stage.extend("A", "1", 10, 1)
    assert stage.extend("A", "2", 10, 0, 2) == [True, True]
    stage.extend("A", "1", 10, 0)
    stage.gone(1, 0)
    assert not stage.granted("C", 21, stage.acquire("C", 20, 0, 1))


@play()
def test_a_lease_that_is_handed_over(stage):
    """1 is out of reach of the process that extends it now, and ends in time; the clock of 0 is wrong."""
    stage.acquire("A", 10, 0, 1, 2)
    stage.extend("A", "r1f", 10, 0, 2)
    stage.gone(0, 1)
    assert not stage.granted("C", 21, stage.acquire("C", 20, 0, 1))


@play()
def test_extensions_of_two_processes(stage):
    """An extension of the one came to 1 only; one of the other to 0 and 2.  Their marks agree with none."""
    stage.acquire("A", 10, 0, 1, 2)
    assert stage.extend("A", "r1", 10, 1) == [True]
    assert stage.extend("A", "r2", 10, 0, 2) == [True, True]
    assert stage.extend("A", "7", 10, 0, 1, 2) == [False] * 3, "numbers do not come behind those"
    assert stage.extend("A", "r1", 10, 0) == [True], "late"
    stage.gone(0, 1)
    assert not stage.granted("C", 21, stage.acquire("C", 20, 0, 1))


@play(3, "a", "b")
def test_two_names_on_one_master_are_no_two_witnesses(stage):
    """A has both on 1 and 2; the clock of 2 jumps; then 1 is out of B's reach, and 3 is back."""
    assert stage.granted("A", 10, stage.acquire("A", 10, 0, 1))
    stage.gone(1)
    assert not stage.granted("B", 21, stage.acquire("B", 20, 1, 2))


@play(1)
def test_a_lease_that_is_released_is_not_on_record_any_more(stage):
    """P4: else the next client would need a second round, or a TTL."""
    (grant,), (fence,), (master,) = stage.keys.grants, stage.keys.fences, stage.masters
    stage.acquire("A", 10, 0)
    assert master.keys[grant].value == f"0 {TTL * 1000:.0f} 10 A"
    stage.extend("A", "3", 10, 0)
    assert master.keys[grant].value == f"3 {TTL * 1000:.0f} 10 A"
    stage.release("A", 10, 0)
    assert {key for key in master.keys if "{" in key} == {fence}


@play(3, "a", "b")
def test_a_name_without_a_record_is_taken_with_one_whose_lease_is_over(stage):
    """A had the one name, and no client the other.  `NONE` is what a master has shown of that one."""
    for master in stage.masters:
        master.command("SET", stage.keys.grants[0], f"0 {TTL * 1000:.0f} 10 A", "PX", 10**8)
    asked = stage.acquire("B", 20, 0, 1, 2)
    assert asked[0] == [3, b"0", [1, b"0", 30_000, b"A"]]
    assert stage.verdict(asked) == "confirmed"
    assert stage.settle("B", 21, [{"0 A"}, set()], 0) == [False], "what was not shown is not taken"
    assert stage.settle("B", 21, [{"0 A"}, {stage.records.NONE}], 0, 1, 2) == [True] * 3
    assert {stage.masters[0].keys[lock].value for lock in stage.keys.locks} == {"B"}


@play(1)
def test_a_lease_that_is_over_is_kept_from_no_client_by_its_release(stage):
    """R28: where only the record is left it goes, and no client is kept out by a key that was not there."""
    (lock,), (grant,), (master,) = stage.keys.locks, stage.keys.grants, stage.masters
    stage.acquire("A", 10, 0)
    stage.gone(0)
    stage.release("A", 10, 0, keep=5.0)
    assert not {lock, grant} & set(master.keys)
    stage.acquire("B", 20, 0)
    stage.release("B", 20, 0, keep=5.0)
    assert master.keys[lock].value == "released:B"
    assert grant not in master.keys
