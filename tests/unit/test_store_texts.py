"""SQL lies in files, each statement named and described."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

import rowlock.store
from rowlock.states import TRANSITIONS, Place
from rowlock.store import queries

STATEMENTS = queries.load()
FOLDER = Path(rowlock.store.__file__).parent


def test_every_text_is_found_by_its_name_and_carries_it() -> None:
    assert {"enqueue", "claim", "append", "finish", "release", "move_leases"} <= set(STATEMENTS)
    for name, text in STATEMENTS.items():
        assert text.startswith(f"-- {name}\n")
        assert not text.endswith(";")


def test_two_statements_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "-- name: a\n-- First.\nSELECT 1;\n"
    monkeypatch.setattr(queries, "_files", lambda: [text, text])
    queries.load.cache_clear()
    try:
        with pytest.raises(ValueError, match="named a"):
            queries.load()
    finally:
        queries.load.cache_clear()


@pytest.mark.parametrize("name", STATEMENTS)
def test_parameters_are_cast_and_tables_are_qualified(name: str) -> None:
    text = re.sub(r"--.*|extract\([^)]*\)", "", STATEMENTS[name])
    assert not re.findall(r"\$\d+(?!\d|::)", text), "a parameter without a cast"
    ctes = set(re.findall(r"(\w+) AS (?:MATERIALIZED )?\(", text)) | {
        "old",
        "unnest",
        "holder",
        "made",
    }
    for table in re.findall(r"(?:FROM|JOIN|INTO|USING|UPDATE)\s+(?!SKIP)([a-z_][\w.]*)", text):
        assert table.startswith("rowlock.") or table in ctes or len(table) == 1 or "." in table, (
            table
        )


def test_every_header_has_its_line_of_description() -> None:
    for file in resources.files("rowlock.store").joinpath("queries").iterdir():
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if line.startswith("-- name:"):
                assert re.match(r"-- [A-Z].*[.:]", lines[number + 1]), (file.name, line)


def test_no_sql_outside_of_the_files() -> None:
    sql = re.compile(r"\b(SELECT .* FROM|INSERT INTO|DELETE FROM|UPDATE \w+ SET)\b")
    for file in FOLDER.glob("*.py"):
        assert not sql.search(file.read_text()), file.name


def test_hot_statements_update_nothing_but_what_a_lifecycle_event_raises() -> None:
    for name in ("enqueue", "claim", "release"):
        assert not re.search(r"\bUPDATE rowlock", STATEMENTS[name]), name
    for name in ("append", "finish"):
        assert re.findall(r"UPDATE (rowlock\.\w+)", STATEMENTS[name]) == ["rowlock.run_lease"], name


@pytest.mark.parametrize(
    ("source", "target", "name"),
    [(source, target, name) for (source, target), names in TRANSITIONS.items() for name in names],
)
def test_each_transition_is_made_by_the_statements_that_the_table_of_states_names(
    source: Place | None, target: Place, name: str
) -> None:
    if source not in (None, Place.FINAL):  # a final stays
        assert f"rowlock.run_{source}" in re.findall(r"DELETE FROM (\S+)", STATEMENTS[name])
    assert f"rowlock.run_{target}" in re.findall(r"INSERT INTO (\S+)", STATEMENTS[name])


#: What is put down to a run, and would be forgotten by a statement that leaves it out.
BLAME = ["blamed", "suspected", "quarantined"]


def test_what_moves_a_live_run_takes_along_what_is_put_down_to_it() -> None:
    moves = re.compile(
        r"INSERT INTO rowlock\.run_(?:ready|backlog|timer|parked|lease)\s*\((.*?)\)", re.S
    )
    found = [(name, columns) for name in STATEMENTS for columns in moves.findall(STATEMENTS[name])]
    assert len(found) >= 14
    forgetful = {
        name for name, columns in found if not set(BLAME) <= set(re.findall(r"\w+", columns))
    }
    # A new run has nothing to forget, and one that somebody asked for again starts afresh.
    assert forgetful == {"enqueue", "redrive"}
