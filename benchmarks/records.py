"""What was measured: records, and the files that they are written to and read from."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SCHEMA: Final = 1
_DIGITS: Final = 4  # of a sample: what is beyond them is noise


@dataclass(frozen=True, slots=True)
class Record:
    """One figure.  ``value`` is the median of the samples; None: there is none, and ``note`` says why."""

    scenario: str
    case: str  # "5 masters", "one frozen"
    subject: str  # the title of a `Subject`
    measure: str  # what it is a figure of
    unit: str  # "×": a ratio to ``baseline``
    value: float | None
    samples: list[float] = field(default_factory=list)
    baseline: str = ""
    typical: float | None = None  # of a ratio: the median of the subject itself, in ``typical_unit``
    typical_unit: str = ""
    bar: float | None = None
    at_most: bool = True  # or at least
    note: str = ""

    @property
    def ok(self) -> bool | None:
        """None: nothing was promised."""
        if self.bar is None:
            return None
        if self.value is None:
            return False
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    @property
    def half(self) -> tuple[float, float] | None:
        """Between these two is the middle half of the samples."""
        if len(self.samples) < 4:
            return None
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high

    def line(self) -> str:
        """For a terminal."""
        text = f"{self.subject:<36} {self.shown:>10}"
        if self.typical is not None:
            text += f"   ({number(self.typical)} {self.typical_unit})"
        if self.half is not None:
            text += f"   half of them {number(self.half[0])} to {number(self.half[1])}"
        if self.bar is not None:
            text += f"   bar {self.limit}: {'ok' if self.ok else 'MISSED'}"
        return f"{text}   {self.note}".rstrip()

    @property
    def shown(self) -> str:
        return "–" if self.value is None else f"{number(self.value)} {self.unit}"

    @property
    def limit(self) -> str:
        return "" if self.bar is None else f"{'≤' if self.at_most else '≥'} {number(self.bar)}"


def ratio(
    scenario: str,
    case: str,
    subject: str,
    measure: str,
    pairs: Iterable[tuple[float, float]],
    *,
    baseline: str,
    bar: float | None = None,
    at_most: bool = True,
    scale: float = 1e6,
    unit: str = "µs",
    note: str = "",
) -> Record:
    """The median of the ratios of neighbours; of the subject itself for people to see what it is about.

    A neighbour that did nothing in its time, on a machine that was busy, is none.
    """
    taken = list(pairs)
    samples = [mine / other for mine, other in taken if other]
    typical = statistics.median(mine for mine, _ in taken) * scale
    return Record(
        scenario,
        case,
        subject,
        measure,
        "×",
        statistics.median(samples) if samples else None,
        samples,
        baseline,
        typical,
        unit,
        bar,
        at_most,
        note if samples else f"{baseline} did nothing in its time",
    )


def middle(
    scenario: str,
    case: str,
    subject: str,
    measure: str,
    unit: str,
    samples: Sequence[float],
    *,
    bar: float | None = None,
    at_most: bool = True,
    note: str = "",
) -> Record:
    return Record(
        scenario,
        case,
        subject,
        measure,
        unit,
        statistics.median(samples),
        list(samples),
        bar=bar,
        at_most=at_most,
        note=note,
    )


def number(value: float) -> str:
    """Three digits, for people."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if value == int(value) and size < 1000:
        return str(int(value))
    if size >= 1000:
        return f"{value:,.0f}"
    digits = next((digits for digits, least in enumerate((100, 10, 0.1, 0.01)) if size >= least), 4)
    return f"{value:.{digits}f}"


@dataclass
class Results:
    """One run."""

    effort: str
    when: str  # a date
    machine: dict[str, str]
    versions: dict[str, str]
    seconds: float = 0.0
    left_out: dict[str, str] = field(default_factory=dict)  # which subject, and why
    records: list[Record] = field(default_factory=list)

    def of(self, scenario: str, **wanted: object) -> list[Record]:
        return [
            record
            for record in self.records
            if record.scenario == scenario and all(getattr(record, name) == value for name, value in wanted.items())
        ]

    @property
    def missed(self) -> list[Record]:
        return [record for record in self.records if record.ok is False]

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        plain = {"schema": SCHEMA, **asdict(self)}
        records = plain.pop("records")
        # One record a line: what has changed between two runs can be read.
        lines = ",\n  ".join(json.dumps(_rounded(record), ensure_ascii=False) for record in records)
        head = json.dumps(plain, ensure_ascii=False, indent=1).removesuffix("\n}")
        file.write_text(f'{head},\n "records": [\n  {lines}\n ]\n}}\n', encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Results:
        plain = json.loads(file.read_text(encoding="utf-8"))
        if plain.pop("schema") != SCHEMA:
            raise SystemExit(f"{file}: these results are of another version of the benchmarks, measure again")
        records = [Record(**record) for record in plain.pop("records")]
        return cls(**plain, records=records)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def markdown(results: Results) -> str:
    """All the figures, a table for each scenario."""
    parts = [f"# Benchmarks, {results.effort}, {results.when}", _about(results)]
    scenarios = dict.fromkeys(record.scenario for record in results.records)
    parts += [f"## {scenario}\n\n{table(results.of(scenario))}" for scenario in scenarios]
    return "\n\n".join(parts) + "\n"


def _about(results: Results) -> str:
    lines = [f"- {name}: {text}" for name, text in {**results.machine, **results.versions}.items()]
    lines += [f"- left out: {subject}, because {why}" for subject, why in results.left_out.items()]
    return "\n".join([*lines, f"- {results.seconds:.0f} s in all, {len(results.missed)} bars missed"])


def table(records: Sequence[Record]) -> str:
    rows = ["| | | figure | | half of the samples | bar |", "|---|---|---:|---:|---|---|"]
    for record in records:
        half = f"{number(record.half[0])} to {number(record.half[1])}" if record.half else ""
        own = f"{number(record.typical)} {record.typical_unit}" if record.typical is not None else ""
        bar = f"{record.limit}{'' if record.ok else ' **missed**'}" if record.bar is not None else ""
        about = f"{record.case}: {record.measure}" if record.case else record.measure
        note = f" ({record.note})" if record.note else ""
        rows.append(f"| {about} | {record.subject} | {record.shown}{note} | {own} | {half} | {bar} |")
    return "\n".join(rows)
