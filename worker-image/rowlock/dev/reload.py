"""`--watch`: the same trial again in a new process whenever code changes.

A new process, because nothing else forgets an imported module for sure.
Files are looked at, not subscribed to: it needs no library, works on every file system,
and a look at some thousand files costs some milliseconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

LOOK_SECONDS: Final = 0.3
#: More files than any agent's folder holds; stops a start in `/`.
_MOST_FILES: Final = 20_000
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})

Stamps = dict[str, tuple[int, int]]


def stamps(folder: Path) -> Stamps:
    """Return time and size of each Python file below `folder`, hidden folders left out."""
    found: Stamps = {}
    for entry in _files(str(folder)):
        try:
            told = entry.stat()
        except OSError:  # gone meanwhile
            continue
        found[entry.path] = (told.st_mtime_ns, told.st_size)
        if len(found) == _MOST_FILES:
            break
    return found


def changed(before: Stamps, after: Stamps) -> list[str]:
    """Return the files that are new, gone or other than before."""
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


def run_again_and_again(
    command: list[str], environment: dict[str, str], folder: Path, say: Callable[[str], None]
) -> int:
    """Run `command`, end it and run it again after each change, until an interrupt."""
    interrupted = False

    def stop(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    code = 0
    while not interrupted:
        seen = stamps(folder)
        process = subprocess.Popen(command, env=environment)
        said = False
        files: list[str] = []
        while not (interrupted or files):
            if process.poll() is not None and not said:
                said = True
                say("waiting for a change of a .py file below this folder; Ctrl-C ends it")
            time.sleep(LOOK_SECONDS)
            files = changed(seen, stamps(folder))
        code = _end(process)
        if files:
            say(f"changed: {', '.join(os.path.relpath(file, folder) for file in files[:3])}")
    return code


def _end(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                yield from _files(entry.path)
        elif entry.name.endswith(".py"):
            yield entry


def own_command(arguments: list[str]) -> list[str]:
    """Return the command that runs `rowlock dev` with `arguments` in a new process."""
    return [sys.executable, "-m", "rowlock.cli", "dev", *arguments]
