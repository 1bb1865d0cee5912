"""A `Health` in Prometheus's text exposition format, for node_exporter's textfile collector."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redlock import Health

_STATUS = {"OK": 0, "WARNING": 1, "CRITICAL": 2}


def exposition(health: Health) -> str:
    """All metrics of ``health`` as text. Unknown values are left out."""
    return "".join(_metric(*metric) for metric in _metrics(health))


def _metrics(health: Health) -> Iterator[tuple[str, str, Iterable[tuple[dict[str, str], float | None]]]]:
    quorum, masters = health.quorum, health.masters

    def each(value: str, per: float = 1.0) -> list[tuple[dict[str, str], float | None]]:
        found = [({"master": master.name}, getattr(master, value)) for master in masters]
        return [(labels, None if number is None else number * per) for labels, number in found]

    yield "status", "0 OK, 1 WARNING, 2 CRITICAL: the exit code of redlock-check.", [({}, _STATUS[health.status])]
    yield "masters", "Masters that are configured.", [({}, quorum.size)]
    yield "majority", "Masters that have to grant a lock.", [({}, quorum.majority)]
    yield "voting", "Masters whose vote would count now.", [({}, quorum.voting)]
    yield "can_lose", "Masters that may fail before no lock can be taken.", [({}, quorum.can_lose)]
    yield "max_ttl_seconds", "Seconds for which a restarted master may not vote.", [({}, quorum.max_ttl)]
    probe = quorum.probe
    if probe is not None:
        yield "probe_ok", "Whether a real lock was acquired, extended and released.", [({}, probe.ok)]
        yield "probe_seconds", "How long that took.", [({}, probe.seconds)]
    yield "master_votes", "Whether the vote of this master would count now.", each("votes")
    yield "master_reachable", "Whether it was connected to, and answered.", each("reachable")
    yield "master_latency_seconds", "A round trip to it.", each("latency_ms", 1e-3)
    yield "master_uptime_seconds", "How long it has been up.", each("uptime_s")
    yield "master_quarantined_seconds", "Seconds until its vote counts, after a restart.", each("quarantined_s")
    yield "master_clock_offset_seconds", "Its wall clock less the median of all.", each("clock_offset_ms", 1e-3)
    yield "master_memory_bytes", "Memory that it uses.", each("used_memory")
    yield (
        "master_info",
        "Its version, role and run_id, as it reports them.",
        [
            (
                {
                    "master": master.name,
                    "role": master.role or "",
                    "flavour": master.flavour or "",
                    "version": master.version or "",
                    "run_id": master.run_id or "",
                },
                1,
            )
            for master in masters
            if master.version is not None
        ],
    )
    yield (
        "finding",
        "A finding; master is empty if it is about the whole quorum.",
        [
            ({"master": name, "level": finding.level, "code": finding.code}, 1)
            for name, findings in [("", health.findings), *((master.name, master.findings) for master in masters)]
            for finding in findings
        ],
    )


def _metric(name: str, text: str, samples: Iterable[tuple[dict[str, str], float | None]]) -> str:
    name = f"redlock_{name}"
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    # A series may occur once only: two findings with the same code on one master become one sample.
    known = {_labels(labels): float(value) for labels, value in samples if value is not None}
    lines += [f"{name}{labels} {value!r}" for labels, value in known.items()]
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
