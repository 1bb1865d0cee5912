"""``python -m tests.bench NAME [SCENE ...]``: which scenes are red for this broken variant?

SCENE is a part of a scene's name, such as ``test_loss``.  Without any, all of them are played.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from tests.bench.variants import VARIANTS
from tests.bench.variants.variant import red

SCENES = Path(__file__).parent.with_name("scenes")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("variant", choices=sorted(VARIANTS), metavar="NAME")
    parser.add_argument("scenes", nargs="*", metavar="SCENE")
    options = parser.parse_args()
    found = 0
    for file in sorted(SCENES.glob("test_*.py")):
        module = importlib.import_module(f"tests.scenes.{file.stem}")
        for name in [f"{file.stem}.{one}" for one in vars(module) if one.startswith("test_")]:
            if any(part in name for part in options.scenes or [""]):
                for text in red(name, VARIANTS[options.variant].patches):
                    print(text, flush=True)
                    found += 1
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
