"""Images for tests: what a Dockerfile and a lock say, and containers of built images by runc."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+) \\$", re.MULTILINE)


def pins(lock: Path) -> dict[str, str]:
    """Return the versions that a lock names, by package."""
    return dict(_PIN.findall(lock.read_text()))


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Return the instructions of the last stage, as (name, arguments), continued lines joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    parsed = [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined)]
    last = max(at for at, (name, _) in enumerate(parsed) if name == "FROM")
    return parsed[last:]


def why_not_built() -> str | None:
    """Say what this machine or session lacks for building and running images; None: nothing."""
    if os.environ.get("ROWLOCK_TEST_IMAGES") != "1":
        return "images are built by `make images-test`, which sets ROWLOCK_TEST_IMAGES=1"
    if os.geteuid() != 0:
        return "building and running images needs root"
    missing = [tool for tool in ("buildah", "runc") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def tool(*command: str, **environment: str) -> str:
    """Run a command to its end and return its output; fail with all that it said."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


class Image:
    """A built image, unpacked once; its containers run as a restricted pod would run them."""

    def __init__(self, name: str, folder: Path):
        self._folder = folder
        self._working = tool("buildah", "from", "--pull-never", name)
        self.root = Path(tool("buildah", "mount", self._working))
        inspected = json.loads(tool("buildah", "inspect", "--type", "image", name))
        self.config: dict[str, Any] = inspected["OCIv1"]["config"]

    def remove(self) -> None:
        """Delete the unpacked copy; the image stays."""
        tool("buildah", "rm", self._working)

    def start(self, *arguments: str, entrypoint: str = "", **environment: str) -> Container:
        """Start a container with the image's user, entrypoint and environment."""
        command = [entrypoint] if entrypoint else self.config["Entrypoint"]
        given = [f"{name}={value}" for name, value in environment.items()]
        user, group = (int(number) for number in self.config["User"].split(":"))
        bundle = self._folder / uuid.uuid4().hex[:8]
        bundle.mkdir()
        process = {
            "user": {"uid": user, "gid": group},
            "args": [*command, *arguments],
            "env": [*self.config["Env"], *given],
            "cwd": self.config["WorkingDir"],
            "noNewPrivileges": True,
            "capabilities": {},
        }
        (bundle / "config.json").write_text(json.dumps(_bundle(self.root, process)))
        return Container(bundle)

    def run(self, *arguments: str, entrypoint: str = "", **environment: str) -> str:
        """Run a container to its end and return what it said; it must end with 0."""
        container = self.start(*arguments, entrypoint=entrypoint, **environment)
        code = container.process.wait(120)
        assert code == 0, container.log
        return container.log


def _bundle(root: Path, process: dict[str, Any]) -> dict[str, Any]:
    """Return an OCI runtime bundle: root file system read-only, /tmp in memory, host's network."""
    small = ["nosuid", "nodev", "mode=1777", "size=64m"]
    return {
        "ociVersion": "1.0.2",
        "process": process,
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": small},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": small},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


class Container:
    """A running container; what it says goes into a file."""

    def __init__(self, bundle: Path):
        self.name = f"rowlock-test-{bundle.name}"
        self._log = bundle / "log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                ["runc", "run", "--bundle", str(bundle), self.name], stdout=output, stderr=output
            )

    @property
    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text(errors="replace")

    def stop(self, signal: str = "TERM") -> int:
        """Send the signal to its first process and return its exit code."""
        if self.process.poll() is None:
            tool("runc", "kill", self.name, signal)
        return self.process.wait(60)
