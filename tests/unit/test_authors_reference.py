"""The reference for authors names each parameter with its default, and none that is not there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rowlock
from rowlock import Budget, ChatAgent, Run, agent, tool

PAGE = Path(__file__).parents[2] / "docs/reference/agents-in-python.md"

_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \|", re.MULTILINE)


def section(title: str) -> str:
    """Return the text under a heading."""
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "function"),
    [
        ("ChatAgent", ChatAgent.__init__),
        ("@agent", agent),
        ("@tool", tool),
        ("run.step", Run.step),
        ("Budget", Budget),
    ],
)
def test_parameters_are_those_of_the_code(title: str, function: Callable[..., Any]) -> None:
    """In their order, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    ours = [
        (one.name, "none" if one.kind is one.VAR_POSITIONAL else default(one))
        for one in parameters
        if one.name != "self" and not (function in (agent, tool) and one.name == "fn")
    ]

    assert _ROW.findall(section(title)) == ours


def default(parameter: inspect.Parameter) -> str:
    """Return a parameter's default as the page writes it."""
    if parameter.default in (inspect.Parameter.empty, ""):
        return "required"
    return f"`{parameter.default!r}`"


def test_all_of_a_run_is_there() -> None:
    """Each member of `Run` stands in the table."""
    text = section("Run")

    for name in vars(Run):
        assert name.startswith("_") or f"`{name}" in text, name


def test_all_errors_of_authors_are_there() -> None:
    """But for the bases that nobody raises; those of models and clients have pages of their own."""
    text, bases = section("Errors"), {"AgentError", "RowlockError"}
    clients = (rowlock.ClientError, rowlock.HistoryExpired, rowlock.WishRefused)

    for name in rowlock.__all__:
        value = getattr(rowlock, name)
        if inspect.isclass(value) and issubclass(value, Exception):
            if issubclass(value, clients):
                continue
            assert name in bases or name.startswith("Model") or f"`{name}`" in text, name
