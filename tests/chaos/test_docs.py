"""docs/chaos-history.md says what is true: its example is judged, and verdict.json has the fields that it lists."""

from __future__ import annotations

import json
import re
from pathlib import Path

from chaos.history import DEMANDABLE, parse
from chaos.judge import judge
from chaos.report import document
from chaos.summary import summarize
from tests.chaos.test_verdict import overlapping

PAGE = (Path(__file__).parents[2] / "docs" / "chaos-history.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
HEADER, VERDICT = [text for language, text in BLOCKS if language == "json"]
[EXAMPLE] = [text for language, text in BLOCKS if not language and text.startswith("{")]


def test_the_example_is_a_history():
    history = parse((HEADER + EXAMPLE).encode())
    verdict = judge(history)
    assert verdict.outcome == "passed"
    assert not any(ruling.vacuous or ruling.note for ruling in verdict.rulings)


def test_every_verdict_has_its_rules():
    for name in DEMANDABLE:
        assert f"\n**{name}** " in PAGE


def test_verdict_json_has_these_fields():
    tape = overlapping()
    tape.used(4, "client-1", "B", fence=2, read=0)
    verdict = tape.verdict()
    found = document(tape.history(), verdict, summarize(tape.history(), verdict))
    told = json.loads(VERDICT)
    assert told.keys() == found.keys()
    for name in ("rulings", "history", "summary"):
        assert told[name].keys() == found[name].keys()  # type: ignore[attr-defined]
    real = json.loads(json.dumps(found))
    for one, other in (
        (told["rulings"]["exclusive"], real["rulings"]["exclusive"]),
        (told["rulings"]["exclusive"]["violations"][0], real["rulings"]["exclusive"]["violations"][0]),
        (told["summary"]["locks"][0], real["summary"]["locks"][0]),
        (told["summary"]["stores"][0], real["summary"]["stores"][0]),
    ):
        assert one.keys() == other.keys()
