"""A recorded history takes no step that the specification forbids: what each line may say, and which rule forbids it."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.__main__ import main
from chaos.judge import steps
from tests.chaos.tape import LOCK, Tape, told

MASTERS = [f"master-{number}" for number in range(1, 6)]
VOTES: dict[str, list[Any]] = {
    "g": ["granted", 0.01],
    "f": ["granted", 0.01, "has the fence 9, ours is not greater"],
    "h": ["held", 0.01, "by somebody for 3.000 s"],
    "q": ["quarantined", 0.01, "restarted 1.0 s ago"],
    "a": ["timeout", None, "no answer within 0.25 s"],
    "p": ["pending"],
}
LASTS = 10 - 0.102  # of a TTL of ten seconds, from the first byte (R6)


def votes(word):
    """A dot: a master that is not in its list."""
    return [[master, *VOTES[letter]] for master, letter in zip(MASTERS, word, strict=True) if letter != "."]


class Told(Tape):
    """Each was asked for 10 ms before it is told."""

    def got(self, t, token, said="gggpp", settled="", by=1, **more):
        """``settled``: the second round."""
        more = {"until": t - 0.01 + LASTS, "fence": int(t * 10), **more}
        again = votes(settled) if settled else None
        self.held(t, f"client-{by}", token, invoked=t - 0.01, votes=votes(said), settled=again, **more)
        return self

    def kept(self, t, token, said="gggpp", op="extend", by=1, **more):
        lasts = {"valid_until": more.pop("until", t - 0.01 + LASTS), "votes": votes(said)}
        self.event(t, f"client-{by}", op, "ok", lock=LOCK, token=token, **lasts)
        return self

    def reads(self, t, token, said="gggpp", **more):
        return self.got(t, token, said, mode="shared", **more)

    def downgraded(self, t, token, said="gggpp"):
        return self.told(f"{t - 0.01} {token} downgrades").kept(t, token, said)

    def gave(self, t, token, by=1):
        return self.told(f"{t} {token}/{by} releases, {t + 0.01} {token}/{by} released")

    def failed(self, t, said, *, asked=0.0, after=0.01):
        """Decided so long after it was asked for, if that is told, and perhaps written later."""
        self.event(asked or t - (after or 0.0), "client-2", "acquire", "invoke", lock=LOCK)
        self.event(t, "client-2", "attempt", "fail", lock=LOCK, after=after, votes=votes(said))
        return self

    def was_lost(self, t, token, said, reason="taken", by=1):
        self.event(t, f"client-{by}", "lost", "info", lock=LOCK, token=token, reason=reason, votes=votes(said))
        return self


ALLOWED = {
    "one after the other": Told().got(1, "A").kept(4, "A", "hgggp").gave(5, "A").got(6, "B", "ggggg"),
    "the other masters": Told().got(1, "A").failed(2, "hhhgg"),
    "a greater fence on one": Told().got(1, "A", "fgggp"),
    "a second round": Told().got(1, "A", "gfghp", "ggghp").gave(2, "A").got(3, "B", "gffpp", "gpgpg"),
    "a second round on what is over for certain": Told(confirm_expiry=True).got(1, "A", "hhhgp", "gggpp"),
    "a release that is under way": Told().got(1, "A").gave(5, "A").got(5.02, "B"),
    "what has run out": Told().got(1, "A").got(11.5, "B"),
    "an extension that overtook the release": Told().got(1, "A").gave(5, "A").kept(5.2, "A", until=4.9 + LASTS),
    "told when it was over": Told().got(11.0, "B").got(12, "A", until=1 + LASTS, fence=1),
    "told late, decided in time": Told().got(1, "A").kept(10.95, "A", until=10.85 + LASTS),
    "an extension that is told between release and answer": Told().got(1, "A").told("5 A releases").kept(5.2, "A"),
    "an attempt that was taken back before it was told": Told().got(2.2, "A").failed(2.3, "gghhh", asked=2.1, after=None),
    "an attempt that read its answers after the release": Told().got(1, "A").failed(3, "hhghh").gave(3.05, "A"),
    "an attempt that failed before": Told().got(2.2, "A").failed(2.3, "gghhh", asked=2.1),
    "lost, as a majority says": Told().got(1, "A").was_lost(4, "A", "hhhaa").got(4, "B", fence=99),
    "lost by who was to go on, and later by who had it": Told().got(1, "A").was_lost(4, "A", "hhhaa", by=2).got(4, "B", fence=99).was_lost(8, "A", "hhhaa"),
    "a late answer": Told().got(1, "A", "gggpp").kept(3, "A", "ppggg"),
    "handed over": Told().got(1, "A").kept(3, "A", op="resume", by=2).gave(4, "A", by=2),
    "handed over late": Told().got(1, "A").kept(10.95, "A", op="resume", by=2),
    "an attempt whose grant ran out while it was stopped": Told().got(13, "A").failed(14, "ggphh", after=13),
    "readers, and a writer behind the last one": Told().reads(1, "A").reads(2, "B").gave(3, "A").gave(4, "B").got(5, "C"),
    "a reader that extends beside another one": Told().reads(1, "A").reads(2, "B", "ppggg").kept(3, "A", "ggggg"),
    "a writer where readers have run out": Told().reads(1, "A").reads(2, "B").got(12.5, "C"),
    "a reader beside one that has downgraded": Told().got(1, "A").downgraded(2, "A", "ggppg").reads(3, "B", "ggggg").kept(4, "A"),
    "a reader while a downgrade is under way": Told().got(1, "A").downgraded(4, "A").reads(3.995, "B"),
    "readers that are told of in the other order": Told().reads(1, "A", fence=12).reads(1.005, "B", fence=11).gave(2, "A").gave(3, "B").got(4, "C"),
    "two slots": Told().got(1, "A", lock="a#0").got(2, "B", lock="a#1"),
    "a slot that another one had": Told().got(1, "A", lock="a#0").got(11.5, "B", lock="a#0"),
    "a list that grows": Told().got(1, "A", "gg...").gave(2, "A").got(3, "B", "ggg..", by=2),
    "a list for one that is out of use": Told().got(1, "A", "gpg..").gave(2, "A").got(11.5, "B", "..ggg", by=2),
    "two lists while a master was away": Told().told("0.5 pause strikes master-3 until 1.5").got(1, "A", "ggp..").got(2, "B", "..pgg", by=2),
    "a list again that was used before": Told().got(1, "A", "gg...").got(12, "B", "..ggg", by=2).got(23, "C", "gg...").got(23.1, "D", "..ggg", until=22, fence=125, by=2),
    "beyond the model": Told(must=("fenced",)).got(1, "A").told("2 evict strikes master-3 until 2.1").got(3, "B", "hhggg"),
    "beyond the model, and its client had not heard of it yet": Told(must=("fenced",)).told("0.8 evict strikes master-3 until 1").got(1.2, "A", until=0.7 + LASTS).failed(3, "hhghh"),
    "beyond the model, and its extension had not been heard of": Told(must=("fenced",)).got(0.1, "A").told("0.8 evict strikes master-3 until 1").kept(1.2, "A", until=0.7 + LASTS).failed(3, "hhghh"),
    "beyond the model, behind its second round, and told behind the next one": Told(must=("fenced",)).told("2.8 evict strikes master-3 until 3").got(3, "B", "ppggg", fence=40).got(3.01, "C", "gggpp", "gggpp", fence=35, by=2),
    "a key without a record, by a clock that jumps": Told(confirm_expiry=True).got(1, "A", "fgggp").told("1.5 swing strikes master-1 until 1.6").failed(3, "ghhhp"),
    "a record that a late release took away, by a clock that jumps": Told(confirm_expiry=True).got(1, "A", "gffgp", "pgggp").told("1.5 liar strikes master-1 until 1.6").failed(3, "ghhhp"),
    "told behind the next one, to which a jump gave it": Told(must=("fenced",)).told("2.99 clock strikes master-3 until 5").got(3, "B", fence=40).got(3.01, "A", "hhggg", fence=35, by=2).kept(4, "B"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_rules_allow(name):
    found = steps(ALLOWED[name].history())
    assert (found.found, found.note) == ((), "")
    assert found.count >= 5


FORBIDDEN = {
    "two of five are a majority": ("R1", 3, Told().got(1, "A", "gghhh")),
    "two, with those that may not vote": ("R1", 3, Told().got(1, "A", "ggqqq")),
    "a fence that no majority has": ("R1", 3, Told().got(1, "A", "ggffh")),
    "a second round without a majority": ("R1", 3, Told().got(1, "A", "gffhh", "gghhh")),
    "a second round for a minority": ("R17", 3, Told().got(1, "A", "gfhhh", "ggghh")),
    "counts on the whole TTL": ("R6", 3, Told().got(1, "A", until=11)),
    "extends to the whole TTL": ("R6", 4, Told().got(1, "A").kept(3, "A", until=13)),
    "no greater fence": ("R18", 7, Told().got(1, "A").gave(2, "A").got(3, "B", fence=10)),
    "the token of before": ("R8", 7, Told().got(1, "A").gave(2, "A").got(3, "A")),
    "releases without holding": ("R12", 4, Told().got(1, "B").gave(2, "A")),
    "releases twice": ("R12", 6, Told().got(1, "A").gave(2, "A").gave(3, "A")),
    "extends a lease that has run out": ("R12", 4, Told().got(1, "A").kept(12, "A")),
    "extends a lease that is lost": ("R12", 5, Told().got(1, "A").was_lost(4, "A", "hhhaa").kept(5, "A")),
    "extends what it has released": ("R12", 6, Told().got(1, "A").gave(2, "A").kept(3, "A")),
    "extends a lease that was not granted": ("R12", 2, Told().kept(3, "A")),
    "extends with two of five": ("R12", 4, Told().got(1, "A").kept(3, "A", "gghaa")),
    "goes on with a lease that is not held": ("R12", 2, Told().kept(3, "A", op="resume")),
    "given up without proof": ("R13", 4, Told().got(1, "A").was_lost(4, "A", "hhaaa")),
    "a master grants it to two": ("R6", 5, Told().got(1, "A").got(3, "B", "ppggg")),
    "a master grants it to two, and one fails": ("R6", 5, Told().got(1, "A").failed(3, "hhghh").gave(3.2, "A")),
    "beyond the model, before both rounds": ("R6", 7, Told(must=("fenced",)).told("2.8 evict strikes master-3 until 2.9").got(3, "B", "ppggg", fence=40).got(3.01, "C", "gggpp", "gggpp", until=3 + LASTS, fence=35, by=2)),
    "beyond the model, before it was asked for": ("R6", 7, Told(must=("fenced",)).told("0.8 evict strikes master-3 until 1").got(1.2, "A", until=1.1 + LASTS).failed(3, "hhghh")),
    "a master has somebody else's": ("R6", 8, Told(must=("fenced",)).got(1, "A").told("1.5 evict strikes master-3 until 1.6").got(2, "B", "ppggg").kept(3, "A")),
    "a writer among readers": ("R6", 9, Told().reads(1, "A").reads(2, "B").gave(3, "A").got(4, "C")),
    "a reader beside a writer": ("R6", 5, Told().got(1, "A").reads(3, "B", "ppggg")),
    "a writer beside one that has downgraded": ("R6", 7, Told().got(1, "A").downgraded(2, "A").got(3, "B", "ppggg")),
    "a reader that two of five let in": ("R1", 3, Told().reads(1, "A", "gghhh")),
    "a reader extends what has run out": ("R12", 4, Told().reads(1, "A").kept(12, "A")),
    "a reader without a greater fence": ("R18", 5, Told().reads(1, "A", fence=12).reads(2, "B", fence=11)),
    "a slot twice": ("R6", 5, Told().got(1, "A", lock="a#0").got(3, "B", "ppggg", lock="a#0")),
    "votes for several slots taken for one": ("R1", 3, Told().got(1, "A", "gghhp", lock="a#1")),
    "a list that does not go with one in use": ("R34", 7, Told().got(1, "A", "gpg..").gave(2, "A").got(3, "B", "..ggg", lock="b", by=2)),
    "a list for another one that was skipped": ("R34", 4, Told().got(1, "A", "g....").kept(9, "A", "ggg..", by=2)),
    "another list in one process": ("R1", 7, Told().got(1, "A", "gpg..").gave(2, "A").got(3, "B", "gggg.")),
    "two of four are a majority": ("R1", 3, Told().got(1, "A", "ggpp.")),
    "a key that has a record, by a clock that jumps": ("R6", 7, Told(confirm_expiry=True).got(1, "A").told("1.5 swing strikes master-1 until 1.6").failed(3, "ghhhp")),
    "a record that the second round has written, by a clock that jumps": ("R6", 7, Told(confirm_expiry=True).got(1, "A", "gffgp", "gggpp").told("1.5 liar strikes master-1 until 1.6").failed(3, "ghhhp")),
    "a record that an extension has written, by a clock that jumps": ("R6", 8, Told(confirm_expiry=True).got(1, "A", "fgggp").kept(1.2, "A", "ggggp").told("1.5 swing strikes master-1 until 1.6").failed(3, "ghhhp")),
    "a key without a record, by a fault that the model stands": ("R6", 7, Told(confirm_expiry=True).got(1, "A", "fgggp").told("1.5 kill strikes master-1 until 1.6").failed(3, "ghhhp")),
    "a fault that the model stands": ("R6", 7, Told().got(1, "A").told("1.5 forget strikes master-3 until 2").got(3, "B", "ppggg")),
}  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_rule_forbids(name):
    rule, line, tape = FORBIDDEN[name]
    [found] = steps(tape.history()).found
    assert (found.sentence.partition(": ")[0], [event.line for event in found.events]) == (rule, [line])


@pytest.mark.parametrize(("tape", "why"), [
    (told("1 A held until 11 fence 1, 5 A releases"), "no client recorded what masters answered"),
    (Told().got(1, "A").told("15 B held until 25 fence 999"), "line 4: acquire without the votes for it"),
])  # fmt: skip
def test_what_cannot_be_replayed_says_why(tape, why):
    found = steps(tape.history())
    assert (found.note.partition(why)[1], found.found, found.exit_code) == (why, (), 2)


@pytest.mark.parametrize(("tape", "code", "printed"), [
    (Told().got(1, "A").gave(2, "A"), 0, "PASSED: "),
    (Told().got(1, "A", "gghhh"), 1, "  1. R1: no majority has granted it"),
    (told("1 A held until 11 fence 1"), 2, "UNKNOWN: no client recorded"),
])  # fmt: skip
def test_the_command(tape, code, printed, tmp_path, capsys):
    (path := tmp_path / "history.jsonl").write_bytes(tape.bytes())
    assert main(["check", "--steps", str(path)]) == code
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize(("slewed", "granted", "taken", "allowed"), [
    ((0.5, None), 1, 10.3, True), ((0.5, None), 1, 10.0, False), ((0.5, 6.0), 1, 10.5, True),
    ((0.5, 6.0), 1, 10.3, False), ((0.5, 15.0), 20, 29.3, False), ((), 1, 10.5, False),
])  # fmt: skip
def test_keys_end_early_only_where_clocks_are_slewed(slewed, granted, taken, allowed):
    """R43: a grant of before the rates are measured.  A key goes by as much earlier as its master's clock has gained."""
    tape = Told()
    if slewed:
        tape.fault("slewed", MASTERS[:3], *slewed)
    tape.got(granted, "A").got(taken, "B", by=2)
    said = [one.sentence.partition(" (")[0] for one in steps(tape.history()).found]
    assert said == ([] if allowed else ["R6: no clock may be so fast"])
