"""`python -m bench scaling`: the autoscaler against plain backlog scaling, simulated.

Every load shape runs under each policy: our own decision as the operator makes it,
`ceil(backlog / target)` as KEDA does it through an HPA, and the same with running runs counted.
Nothing is measured here: the figures are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench._scalers import Backlog, Ours, Scaler
from bench._shapes import Shape, shapes
from bench._simulation import Simulation, Verdict
from rowlock_operator.pools.scaling import Policy

SLOTS = 10
POLICY = Policy(least=0, most=30, slots=SLOTS)
SCALERS: tuple[Callable[[], Scaler], ...] = (
    lambda: Ours(POLICY),
    lambda: Backlog(POLICY, with_running=False),
    lambda: Backlog(POLICY, with_running=True),
)


_COLUMNS = (
    "shape",
    "policy",
    "wait p50 / p95 / max, s",
    "time p95, s",
    "worker-minutes",
    "most workers",
    "changes",
    "turns",
    "handed over",
    "runs",
)


def compare(shape: Shape) -> dict[str, Verdict]:
    """Return how each policy does under one load."""
    scalers = [make() for make in SCALERS]
    return {it.name: Simulation(shape, it, slots=SLOTS).run() for it in scalers}


def table(found: dict[str, dict[str, Verdict]]) -> Table:
    """Return the figures as people read them."""
    shown = Table(*_COLUMNS)
    for shape, verdicts in found.items():
        for policy, it in verdicts.items():
            shown.add_row(
                shape,
                policy,
                f"{it.wait_p50:.0f} / {it.wait_p95:.0f} / {it.wait_max:.0f}",
                f"{it.time_p95:.0f}",
                f"{it.worker_minutes:,.0f}",
                str(it.most_workers),
                str(it.changes),
                str(it.turns),
                f"{it.handed_over:,}",
                f"{it.finished:,}",
            )
        shown.add_section()
    return shown


def main() -> None:
    """Simulate, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(prog="python -m bench scaling", description=__doc__)
    parser.add_argument("--shape", action="append", choices=[shape.name for shape in shapes()])
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    chosen = [it for it in shapes() if not options.shape or it.name in options.shape]
    found = {shape.name: compare(shape) for shape in chosen}
    Console(width=170).print(table(found))
    if options.json:
        figures = {
            shape: {policy: asdict(it) for policy, it in verdicts.items()}
            for shape, verdicts in found.items()
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
