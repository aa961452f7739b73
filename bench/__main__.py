"""`python -m bench LOAD`: run one load and print its table; `LOAD --help` lists its options."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

_LOADS = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")
)


def main() -> None:
    """Hand over to the module of the load."""
    if len(sys.argv) < 2 or sys.argv[1] not in _LOADS:
        known = sys.argv[1:2] in (["-h"], ["--help"])
        print(f"usage: python -m bench {{{','.join(_LOADS)}}} [options]\n\n{__doc__}")
        sys.exit(0 if known else 2)
    load = sys.argv.pop(1)
    runpy.run_module(f"bench.{load}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
