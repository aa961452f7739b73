"""The reference pages of the worker say what the code says.

`WRITE_REFERENCE=1 make test-unit ARGS="-k reference"` writes them anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from rowlock.doctor.checks import CHECKS
from rowlock.metrics import TABLE
from rowlock.settings import RetentionSettings, WorkerSettings

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"
MARK = '<!-- Generated: WRITE_REFERENCE=1 make test-unit ARGS="-k reference". Do not edit. -->\n\n'


def cli_page() -> str:
    """Return the page of all commands."""
    command = [sys.executable, "-m", "typer", "rowlock.cli", "utils", "docs", "--name", "rowlock"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    text = done.stdout.replace("\b\n", "")
    text = re.sub(r"^Examples:\n((?:  .*\n)+)", r"```console\n\1```\n", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def settings_page() -> str:
    """Return the page of the worker's variables."""
    head = ["| variable | default | bounds | meaning |", "|---|---|---|---|"]
    return "\n".join(
        [
            "# Settings of a worker",
            "",
            "Environment variables; a flag of `rowlock worker` wins over its variable.",
            "A wrong value ends the start with one line that names the variable, and code 2.",
            "",
            *head,
            *_settings_rows(WorkerSettings),
            "",
            "## Of `rowlock gc`",
            "",
            *head,
            *_settings_rows(RetentionSettings),
            "",
        ]
    )


def _settings_rows(kind: type[BaseSettings]) -> list[str]:
    about = _descriptions(kind.__doc__ or "")
    about["database_url"] = "`postgresql://user:password@host:5432/name`."
    return [
        f"| `ROWLOCK_{name.upper()}` | {_default(name, field)} | {_bounds(field)} | {about[name]} |"
        for name, field in kind.model_fields.items()
    ]


def doctor_page() -> str:
    """Return the page of the doctor's checks."""
    rows = [f"| `{check.name}` | {check.looks} | {check.cure} |" for check in CHECKS]
    return "\n".join(
        [
            "# Checks of `rowlock doctor`",
            "",
            "Where two values stand, the first warns and the second fails.",
            "[Check the database](../how-to/check-the-database.md) says when to run it.",
            "",
            "| check | looks at | cure |",
            "|---|---|---|",
            (
                "| `schema` | migrations that are missing: fail; that may follow: warn "
                "| run `rowlock migrate` as the owner |"
            ),
            (
                "| `pooler` | whether one stands between, and keeps prepared statements "
                "| PgBouncer 1.21 or newer with max_prepared_statements above 0 |"
            ),
            *rows,
            (
                "| `invariants` | what must never be: any is a failure, and reads all of history "
                "| keep the rows, SELECT * FROM rowlock.violations, and report it |"
            ),
            "",
        ]
    )


def metrics_page() -> str:
    """Return the page of the worker's metrics."""
    rows = [
        f"| `{row.name}` | {row.kind} | {' '.join(f'`{one}`' for one in row.labels)} | {row.help} |"
        for row in TABLE.values()
    ]
    head = ["# Metrics of a worker", "", "| name | type | labels | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _descriptions(docstring: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for names, text in re.findall(
        r"^    (\w[\w, ]*)\n((?:        .+\n)+)", docstring, re.MULTILINE
    ):
        for name in names.split(", "):
            found[name] = " ".join(text.split())
    return found


def _default(name: str, field: FieldInfo) -> str:
    special = {"processes": "one per core", "database_url": "required"}
    if name in special:
        return special[name]
    value = field.get_default()
    return f"`{value}`" if value != "" else ""


def _bounds(field: FieldInfo) -> str:
    words = []
    for limit in field.metadata:
        if isinstance(limit, Gt):
            words.append(f"> {limit.gt:g}")
        elif isinstance(limit, Ge):
            words.append(f"≥ {limit.ge:g}")
        elif isinstance(limit, Le):
            words.append(f"≤ {limit.le:g}")
    return ", ".join(words)


@pytest.mark.parametrize(
    ("page", "make"),
    [
        ("cli.md", cli_page),
        ("settings.md", settings_page),
        ("doctor.md", doctor_page),
        ("worker-metrics.md", metrics_page),
    ],
)
def test_a_reference_page_says_what_the_code_says(page: str, make: object) -> None:
    assert callable(make)
    expected = MARK + make()
    if os.environ.get("WRITE_REFERENCE"):
        (REFERENCE / page).write_text(expected)
    assert (REFERENCE / page).read_text() == expected
