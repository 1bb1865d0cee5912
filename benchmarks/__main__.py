"""Measure this library beside the limits of the machine, what people write themselves, and other libraries.

    python -m benchmarks [SCENARIO …] [--effort tiny|quick|full] [--no-peers] [--out FOLDER]
    python -m benchmarks shape [--write]
    python -m benchmarks counts [--write]
    python -m benchmarks servers [PROGRAM …]
    python -m benchmarks --list

Machines are shared and noisy: what is compared is measured in turn, figures are medians of ratios of neighbours, and a
single time proves nothing.  Writes results.json (with all samples) and results.md.  The exit code says whether it was
measured, not whether it was fast.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import counts, peers, servers, shape
from benchmarks.lab import EFFORTS, Lab
from benchmarks.records import Results, markdown
from redlock.testing import LocalMasters, find_server

if TYPE_CHECKING:
    from collections.abc import Sequence

SCENARIOS = (
    "latency", "single", "apart", "faults", "delays", "contention", "slots", "leaders", "readers", "confirmed", "throughput", "held", "masters", "memory",
    "transactions", "imports",
)  # fmt: skip
_MASTERS = 9


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["shape"]:  # it counts, and takes no servers
        return shape.main(arguments[1:])
    if arguments[:1] == ["counts"]:
        return counts.main(arguments[1:])
    if arguments[:1] == ["servers"]:
        return servers.main(arguments[1:])
    options = _parser().parse_args(arguments)
    modules: dict[str, Any] = {name: importlib.import_module(f"benchmarks.scenarios.{name}") for name in SCENARIOS}
    if options.list:
        for name, module in modules.items():
            print(f"{name:<12} {module.TITLE}")
        print(f"{'shape':<12} {shape.TITLE}")
        print(f"{'counts':<12} {counts.TITLE}")
        print(f"{'servers':<12} {servers.TITLE}")
        return 0
    unknown = [name for name in options.scenario if name not in modules]
    if unknown:
        print(f"no such scenario: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}", file=sys.stderr)
        return 64
    try:
        results = _measure({name: modules[name] for name in options.scenario or SCENARIOS}, options)
    except KeyboardInterrupt:
        print("\ninterrupted: nothing is written, nothing runs any more", file=sys.stderr)
        return 130
    results.write(options.out / "results.json")
    (options.out / "results.md").write_text(markdown(results), encoding="utf-8")
    print(f"\n{len(results.records)} figures in {results.seconds:.0f} s, written to {options.out}/results.json and .md")
    for record in results.missed:
        print(f"missed: {record.scenario}, {record.case}, {record.measure}: {record.line()}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="*", help=f"one or more of {', '.join(SCENARIOS)}; none: all")
    parser.add_argument("--effort", choices=EFFORTS, default="quick", help="how many rounds (default %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="without the other libraries, which takes no network")
    parser.add_argument("--out", type=Path, default=peers.MADE, help="folder to write to (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="what there is to measure")
    return parser


def _measure(modules: dict[str, Any], options: argparse.Namespace) -> Results:
    effort = EFFORTS[options.effort]
    began = time.monotonic()
    results = Results(effort.name, time.strftime("%Y-%m-%d"), machine(), versions())
    with LocalMasters(_MASTERS) as servers:
        lab = Lab(servers, effort, peers=not options.no_peers)
        for module in modules.values():
            case, entered = None, time.monotonic()
            lab.say(f"\n{module.TITLE}")
            for record in module.run(lab):
                if (record.case, record.measure) != case:
                    case = (record.case, record.measure)
                    against = f", to {record.baseline}" if record.baseline else ""
                    lab.say(f"  {record.case + ': ' if record.case else ''}{record.measure}{against}")
                lab.say(f"    {record.line()}")
                results.records.append(record)
            lab.say(f"  ({time.monotonic() - entered:.0f} s)")
        results.left_out = lab.left_out
    results.seconds = round(time.monotonic() - began, 1)
    return results


def machine() -> dict[str, str]:
    server = find_server()
    said = subprocess.run([str(server), "--version"], capture_output=True, text=True, check=False).stdout
    return {
        "processors": f"{os.cpu_count()} of {_processor()}",
        "system": f"{platform.system()} {platform.machine()}",
        "load when it began": f"{os.getloadavg()[0]:.1f}",
        "servers": " ".join(
            word for word in said.split() if not word.startswith(("sha=", "malloc=", "bits=", "build="))
        ),
    }


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    for line in known.read_text(encoding="utf-8").splitlines() if known.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown kind"


def versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in ("redis", "hiredis"):
        found[name] = metadata.version(name)
    node = shutil.which("node")
    if node is not None:
        found["Node"] = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    for line in (peers.WORKERS / "peers.txt").read_text(encoding="utf-8").splitlines():
        name, equals, version = line.partition("==")
        if equals and name != "redis":
            found[name] = version
    return found


if __name__ == "__main__":
    sys.exit(main())
