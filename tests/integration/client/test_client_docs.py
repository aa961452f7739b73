"""The how-to page about the client is a program: its files run against a worker."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.workers import ROOT, Bench, bench_fixture  # noqa: F401

PAGE = ROOT / "docs" / "how-to" / "start-runs-from-code.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_files(folder: Path) -> str:
    """Write the page's files, each made of its blocks; return what the page says they print."""
    files: dict[str, str] = {}
    printed = ""
    for language, text in _BLOCK.findall(PAGE.read_text()):
        if language == "python":
            first, _, rest = text.partition("\n")
            name = first.removeprefix("# ")
            files[name] = files.get(name, "") + "\n\n" + rest
        elif language == "text":
            printed = text
    for name, text in files.items():
        (folder / name).write_text(text)
    assert set(files) == {"shop.py", "start.py", "plain.py"}
    return printed


async def test_the_page_prints_what_it_says(bench: Bench, tmp_path: Path) -> None:
    printed = write_files(tmp_path)
    path = os.pathsep.join([str(ROOT / "worker-image"), str(tmp_path)])
    bench.worker(environment={"PYTHONPATH": path})
    environment = {**os.environ, "PYTHONPATH": path, "ROWLOCK_DATABASE_URL": bench.dsn}

    async def run(name: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, name],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr + bench.workers[0].log[-3000:]
        return str(done.stdout)

    assert await run("start.py") == printed
    assert await run("plain.py") == "2 cups of tea\n"
