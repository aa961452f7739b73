"""What the tests of the examples share: their pages, their programs, and what both print."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.workers import ROOT, Bench

EXAMPLES = ROOT / "examples"
PATH = os.pathsep.join(map(str, (ROOT / "worker-image", EXAMPLES)))

_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown(example: str) -> dict[str, list[str]]:
    """Return the commands on an example's page, each with the outputs that the page shows."""
    page = (EXAMPLES / example / "README.md").read_text()
    found: dict[str, list[str]] = {}
    for block in _CONSOLE.findall(page):
        for command, output in _COMMAND.findall(block):
            found.setdefault(without_figures(command), []).append(output)
    return found


def without_figures(text: str) -> str:
    """Return `text` with run numbers and times as N, for those differ from run to run."""
    return re.sub(r"\b\d{12,}\b|\b\d+\.\d+(?= s\b)|\b\d+(?= ms\b)", "N", text)


def holds(printed: str, promised: str) -> None:
    """Assert that the lines of a page stand in what was printed, in their order."""
    lines = iter(without_figures(printed).splitlines())
    for line in without_figures(promised).splitlines():
        assert line in lines, f"{line!r} is not in its place in\n{printed}"


async def program(
    bench: Bench, *arguments: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of the examples, or `rowlock`, on the bench's database."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": PATH,
            "ROWLOCK_DATABASE_URL": bench.dsn,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def lines(path: Path) -> list[str]:
    """Return the lines of a file that may not be there yet."""
    return path.read_text().splitlines() if path.exists() else []
