"""The tutorial, followed to the letter in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.acceptance.test_dev import cache, start  # noqa: F401
from tests.example_programs import without_figures
from tests.workers import ROOT

PAGE = ROOT / "docs" / "tutorial" / "first-agent.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """Return the page's blocks of one language."""
    return [text for kind, text in _BLOCK.findall(PAGE.read_text()) if kind == language]


def add(folder: Path, piece: str) -> str:
    """Put a piece to the end of the file that its first line names; return that name."""
    first, _, rest = piece.partition("\n")
    name = first.removeprefix("# ")
    with (folder / name).open("a") as file:
        file.write(rest + "\n\n")
    return name


def run(folder: Path) -> str:
    """Return what `python first.py` prints."""
    done = subprocess.run(
        [sys.executable, "first.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "worker-image")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_piece_adds_what_the_page_says(tmp_path: Path) -> None:
    """Each call prints what the pieces before it print, and then the new one's lines."""
    promised = iter(blocks("text"))
    printed = ""
    for piece in blocks("python"):
        if add(tmp_path, piece) == "first.py":
            printed += next(promised)
            assert run(tmp_path) == printed
    assert next(promised, None) is None


async def test_it_ends_in_a_worker_that_really_dies(
    tmp_path: Path,
    start: Any,  # noqa: F811
) -> None:
    """The lines of the page stand in the terminal, in their order."""
    add(tmp_path, blocks("python")[0])
    [shown] = [block for block in blocks("console") if "rowlock dev" in block]
    command, *promised = shown.splitlines()

    dev = start(*shlex.split(command.removeprefix("$ rowlock dev ")))

    assert await dev.ends() == 0, dev.err
    said = iter(without_figures(dev.out).splitlines())
    for line in promised:
        assert without_figures(line) in said, f"{line!r} is not in its place in\n{dev.out}"
