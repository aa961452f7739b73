"""The reference of what commands answer to programs says what the code says.

`WRITE_REFERENCE=1 make test-unit ARGS="-k reference"` writes it anew.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from rowlock.commands import shapes
from rowlock.commands.describing import document_of
from rowlock.commands.shapes import RunShape, Told

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli-output.md"
_HEAD = """
<!-- Generated: WRITE_REFERENCE=1 make test-unit ARGS="-k reference". Do not edit. -->

# What commands answer to programs

`-o json` writes one document on a line, `-o yaml` the same in YAML,
and `-o name` what commands take as RUN, a line each.
`list`, `queue`, `pools` and `approvals` answer with a list;
`events` and `logs` with a document a line (in YAML between `---`).

The keys are the same through the database and through the cluster.
A key that a way cannot tell is null there:
the database knows no conditions and no Kubernetes events,
and the cluster no steps and no places in line.

## Exit codes

| code | means |
|---|---|
| 0 | done, or asked for and under way; who waited for a run: it succeeded |
| 1 | it cannot be done, or you may not; who waited: the run failed or was cancelled |
| 2 | the command line or the configuration is wrong, and nothing was done |
| 124 | `run --timeout`: the run has not ended in time, and goes on |
| 130 | Ctrl-C; a run that was started goes on |
"""
_COMMANDS = {
    shapes.RunShape: "`list`",
    shapes.WaitShape: "`queue`",
    shapes.PoolShape: "`pools`",
    shapes.QuestionShape: "`approvals`",
    shapes.Happening: "`events`",
    shapes.LogLine: "`logs`",
    shapes.Answered: "`suspend`, `continue`, `cancel`, `retry`, `approve`, `deny`",
    shapes.Started: "`run`",
}
_DESCRIBE = """
## `describe`

All keys of `list`, and these:

| key | meaning |
|---|---|
| `seconds` | from the first claim to the end; 0 before it |
| `result` | of a run that succeeded |
| `preview` | the beginning of a result that is not all there: the cluster keeps 1 KiB |
| `waits` | `reason`, `place`, `since` and `due_at` of `queue`; null for a run that does not wait |
| `questions` | as `approvals` |
| `timeline` | steps, takeovers and waits; through the database |
| `conditions` | as the AgentRun's status has them; through the cluster |
| `leases` | `status.history` of the AgentRun: the last ten; through the cluster |
| `events` | as `events`; through the cluster |

`run --wait` answers with `run`, `agent`, `phase`, `result`, `preview`, `reason`, `message`,
`outcome`, `attempt`, `takeovers` and `seconds`.
"""


def page() -> str:
    """Return the page."""
    parts = [_HEAD.lstrip()]
    for shape, commands in _COMMANDS.items():
        head = ["| key | type | meaning |", "|---|---|---|"]
        parts.append("\n".join([f"## {commands}", "", *head, *_rows(shape), ""]))
        if shape is RunShape:
            parts.append(_DESCRIBE.lstrip())
    return "\n".join(parts)


def _rows(shape: type) -> list[str]:
    about = _descriptions(inspect.getdoc(shape) or "")
    return [
        f"| `{field.name}` | {_type(str(field.type))} | {_null(about.get(field.name, ''))} |"
        for field in dataclasses.fields(shape)
    ]


def _null(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)


def _type(text: str) -> str:
    for code, word in (("Name", "number or text"), ("datetime", "time"), ("str", "text"),
                       ("int", "number"), ("float", "number"), ("None", "null")):  # fmt: skip
        text = re.sub(rf"\b{code}\b", word, text)
    text = re.sub(r"dict\[.*\]", "object", text)
    return text.replace(" | ", " or ").replace("Any", "any")


def _descriptions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for names, meaning in re.findall(r"^(\w[\w, ]*)\n((?: {4}.+(?:\n|$))+)", text, re.MULTILINE):
        for name in names.split(", "):
            found[name] = " ".join(meaning.split())
    return found


def test_the_reference_of_answers_says_what_the_code_says() -> None:
    expected = page()
    if os.environ.get("WRITE_REFERENCE"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected


def test_describe_has_the_keys_that_the_reference_names() -> None:
    info = RunShape(
        "x", 1, "a", "b", None, 0, "Running", 1, 0, None, datetime.now(UTC), None, None, None,
        None, None, None, 0, 0, 0,
    )  # fmt: skip

    keys = set(document_of(Told(info)))

    named = set(re.findall(r"^\| `(\w+)` \|", _DESCRIBE, re.MULTILINE))
    assert keys == named | {field.name for field in dataclasses.fields(RunShape)}
