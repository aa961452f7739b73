"""The how-to page about the terminal: its commands are typed, and answer as the page says."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers import ROOT, Bench, bench_fixture, eventually  # noqa: F401

PAGE = ROOT / "docs" / "how-to" / "watch-and-steer-runs.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (rowlock [^\n]*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_RUN = re.compile(r"\d{15,}")
#: What is done once; all else is asked until it answers so.
_ACTS = ("run", "approve", "deny", "suspend", "continue", "cancel", "retry")


def commands() -> Iterator[tuple[str, str]]:
    """Yield each command of the page with what it answers."""
    for language, text in _BLOCK.findall(PAGE.read_text()):
        if language == "console":
            yield from _COMMAND.findall(text)


def without_figures(text: str) -> str:
    """Return `text` with every figure as N and every gap as one space."""
    masked = re.sub(r"[\w.-]+/\d\b", "WORKER", text)
    masked = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", masked)
    masked = re.sub(r"\b[0-9a-f]{12,}\b", "N", masked)
    masked = re.sub(r"\d+(\.\d+)?(?: ?(ms|s|m\d+s)\b)?", "N", masked)
    return "\n".join(" ".join(line.split()) for line in masked.splitlines())


@pytest.mark.timeout(300)
async def test_the_page_shows_what_its_commands_show(bench: Bench, tmp_path: Path) -> None:
    [code] = [text for language, text in _BLOCK.findall(PAGE.read_text()) if language == "python"]
    (tmp_path / "shop.py").write_text(code)
    path = os.pathsep.join([str(ROOT / "worker-image"), str(tmp_path)])
    bench.worker(environment={"PYTHONPATH": path, "ROWLOCK_PARK_SECONDS": "0.2"})
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "ROWLOCK_DATABASE_URL": bench.dsn,
        "USER": "ada",
        "LOGNAME": "ada",
    }
    numbers: dict[str, str] = {}

    def answer(command: str) -> str:
        typed = _RUN.sub(lambda run: numbers.get(run[0], run[0]), command)
        done = subprocess.run(
            [sys.executable, "-m", "rowlock.cli", *shlex.split(typed)[1:]],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout

    for command, shown in commands():
        said = ""

        async def fits(command: str = command, shown: str = shown) -> bool:
            nonlocal said
            said = await asyncio.to_thread(answer, command)
            return without_figures(said) == without_figures(shown)

        if command.split()[1] in _ACTS:
            assert await fits(), f"{command}\n{said}"
        else:
            await eventually(fits, command, said=lambda: said)  # noqa: B023  called at once
        numbers |= dict(zip(_RUN.findall(shown), _RUN.findall(said), strict=True))


def test_the_page_shows_each_command() -> None:
    """Of those that watch or steer."""
    shown = {command.split()[1] for command, _ in commands()}

    assert shown >= {
        "run", "list", "describe", "events", "queue", "pools", "suspend", "continue", "cancel",
        "retry", "approvals", "approve",
    }  # fmt: skip
