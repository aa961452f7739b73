"""Write the JSON and the page of the dashboards, or compare them."""

from __future__ import annotations

import sys
from pathlib import Path

from rowlock_operator.api.generated import Folder, drift

from .grafana import as_json
from .model import Dashboard
from .operators import OPERATOR
from .page import NOTE, page
from .queue import QUEUE
from .runs import RUNS
from .takeovers import TAKEOVERS
from .workers import WORKERS
from .writer import WRITER

ROOT = Path(__file__).parents[2]
DASHBOARDS: tuple[Dashboard, ...] = (RUNS, TAKEOVERS, QUEUE, WORKERS, WRITER, OPERATOR)


def folders(root: Path = ROOT) -> list[Folder]:
    """Return all generated files."""
    texts = {f"{each.name}.json": as_json(each) for each in DASHBOARDS}
    return [
        Folder(root / "charts" / "rowlock" / "dashboards", texts, "{"),
        Folder(root / "docs" / "reference", {"dashboards.md": page(DASHBOARDS)}, NOTE),
    ]


def main() -> None:
    """Write the files, or end with 1 and a diff if they differ."""
    if "--verify" not in sys.argv[1:]:
        for folder in folders():
            folder.write()
        return
    if difference := drift(folders()):
        sys.stdout.write(difference)
        sys.exit("Run `python -m charts.dashboards`.")


if __name__ == "__main__":
    main()
