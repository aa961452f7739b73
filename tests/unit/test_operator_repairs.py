"""What a sweep finds, and when it does not dare."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock.store.types import LinkedRun, RunId
from rowlock_operator.api.names import HOLD
from rowlock_operator.intake.repairs import Findings, Listed, compare, listed_in
from rowlock_operator.kube.errors import CRDsMissing
from rowlock_operator.kube.resources import ObjectKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(uid: str, *, revision: int = 5, finished: bool = False) -> LinkedRun:
    return LinkedRun(uid, RunId(1), "ns", f"run-{uid}", 1, revision, finished, NOW)


def item(uid: str, *, phase: str = "Running", revision: int | None = 5) -> Listed:
    return Listed(ObjectKey("ns", f"run-{uid}", uid), 1, phase, revision)


def found(rows: list[LinkedRun], items: list[Listed]) -> Findings:
    return compare({it.uid: it for it in rows}, items)


def test_what_agrees_needs_nothing() -> None:
    it = found([row("a"), row("b", finished=True)], [item("a"), item("b", phase="Succeeded")])
    assert (it.new, it.rowless, it.behind, it.vanished) == ([], [], [], [])
    assert (it.live, it.unfinished) == (1, 1)


def test_each_difference_is_told_apart() -> None:
    it = found(
        [row("behind"), row("unseen"), row("gone"), row("old", finished=True), row("ahead")],
        [
            item("behind", revision=4),
            item("unseen", phase="", revision=None),
            item("ahead", revision=6),
            item("new", phase="", revision=None),
            item("waits", phase="Queued", revision=None),
            item("restored"),
            item("refused", phase="Failed", revision=None),
            item("kept", phase="Succeeded"),
        ],
    )
    assert [row.uid for row in it.behind] == ["behind", "unseen"]
    assert [listed.key.uid for listed in it.new] == ["new", "waits"]
    assert [listed.key.uid for listed in it.rowless] == ["restored"]
    assert sorted(row.uid for row in it.vanished) == ["gone", "old"]
    assert it.vanished_live == 1


@pytest.mark.parametrize(
    ("live", "vanished", "percent", "held"),
    [
        (1, 1, 10, False),
        (10, 10, 10, False),
        (11, 11, 10, True),
        (110, 11, 10, False),
        (109, 11, 10, True),
        (1000, 100, 10, False),
        (1000, 101, 10, True),
        (50, 50, 100, False),
        (50, 11, 0, True),
    ],
)
def test_a_mass_of_vanished_runs_is_held(
    live: int, vanished: int, percent: float, held: bool
) -> None:
    it = Findings(live=live, vanished=[row(str(n)) for n in range(vanished)])
    assert it.held(percent=percent) is held


def test_finished_runs_are_let_go_in_any_number() -> None:
    it = Findings(live=1, vanished=[row(str(n), finished=True) for n in range(500)])
    assert not it.held(percent=10)


def test_a_mass_of_missing_rows_is_held_too() -> None:
    it = Findings(unfinished=50, rowless=[item(str(n)) for n in range(50)])
    assert it.held(percent=10)


def table(columns: list[str], *cells: list[Any]) -> dict[str, Any]:
    metadata = {"name": "r", "namespace": "ns", "uid": "u", "generation": 2}
    return {
        "columnDefinitions": [{"name": name} for name in columns],
        "rows": [{"cells": row, "object": {"metadata": metadata}} for row in cells],
    }


def test_a_table_is_read_by_the_names_of_its_columns() -> None:
    columns = ["Name", "Revision", "TTL", "Phase", "Agent"]
    page = table(columns, ["r", 7, 60, "Running", "a"], ["r", None, None, "", "a"])
    key = ObjectKey("ns", "r", "u")
    assert listed_in(page) == [
        Listed(key, 2, "Running", 7, "a", 60),
        Listed(key, 2, "", None, "a"),
    ]
    assert listed_in({**table(columns), "rows": None}) == []
    page["rows"][0]["object"]["metadata"] |= {"finalizers": [HOLD], "deletionTimestamp": "now"}
    assert (listed_in(page)[0].held, listed_in(page)[0].deleting) == (True, True)


def test_an_older_definition_is_named() -> None:
    with pytest.raises(CRDsMissing, match="update rowlock-crds"):
        listed_in(table(["Phase", "Revision"], ["Running", 1]))


@pytest.mark.parametrize(
    ("finished", "held", "deleting", "unheld", "in_vain"),
    [
        (False, False, False, True, False),
        (False, True, False, False, False),
        (False, True, True, False, True),
        (False, False, True, False, False),
        (True, True, False, False, True),
        (True, False, False, False, False),
    ],
)
def test_holds_that_are_missing_or_in_vain_are_found(
    *, finished: bool, held: bool, deleting: bool, unheld: bool, in_vain: bool
) -> None:
    it = found([row("a", finished=finished)], [replace(item("a"), held=held, deleting=deleting)])
    assert (bool(it.unheld), bool(it.held_in_vain)) == (unheld, in_vain)


def test_what_is_over_without_a_row_is_found() -> None:
    it = found(
        [row("row", finished=True)],
        [
            item("row", phase="Failed"),
            item("refused", phase="Failed", revision=None),
            item("restored", phase="Succeeded"),
            item("new", phase="", revision=None),
        ],
    )
    assert [listed.key.uid for listed in it.over] == ["refused", "restored"]
