"""The reference page of `rowlock.testing` names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import rowlock.testing
from rowlock.testing.points import POINTS

PAGE = (Path(__file__).parents[2] / "docs/reference/testing.md").read_text()


def test_the_page_lists_all_points_in_their_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (yes|no) \| (.*) \|$", PAGE, re.MULTILINE)

    assert rows == [
        (str(point), "yes" if moment.of_step else "no", moment.meaning)
        for point, moment in POINTS.items()
    ]


def test_every_public_name_has_a_line() -> None:
    table = PAGE[PAGE.index("## Names") : PAGE.index("## Trial")]
    named = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", "\n".join(
        line.split("|")[1] for line in table.splitlines() if line.startswith("| `")
    )))  # fmt: skip

    assert named == set(rowlock.testing.__all__)


def test_all_members_of_a_trial_are_described() -> None:
    table = PAGE[PAGE.index("## Trial") : PAGE.index("## Points")]
    public = {name for name in dir(rowlock.testing.Trial) if not name.startswith("_")}

    assert {name for name in public if not re.search(rf"\b{name}\b", table)} <= {
        "agent",
        "pool",
        "run_id",
    }
