"""A person at a shell, with kubectl and the rights of a kubeconfig."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from typer.testing import CliRunner

from rowlock.cli import app
from tests.operators import ROOT, Stage, eventually
from tests.workers import LONG, LocalWorker

WALKER = "tests.agents_for_tests:walker"


@dataclass
class Typed:
    """A command that was started."""

    process: subprocess.Popen[bytes]
    out_file: Path
    err_file: Path

    @property
    def out(self) -> str:
        """What it has answered."""
        return self.out_file.read_text()

    @property
    def err(self) -> str:
        """What it has told."""
        return self.err_file.read_text()

    async def tells(self, text: str) -> None:
        """Wait until it has said so."""

        async def look() -> bool:
            assert text in self.out + self.err or self.process.poll() is None, self.err + self.out
            return text in self.out + self.err

        await eventually(look, f"{text!r}", within=60)

    async def ends(self) -> int:
        """Wait for its end and return its code."""

        async def look() -> bool:
            return self.process.poll() is not None

        await eventually(look, f"the end of the command: {self.err}", within=60)
        return int(self.process.wait())


@dataclass
class Person:
    """Who types commands about a stage's namespace, and looks after its workers."""

    stage: Stage
    kubeconfig: Path
    folder: Path
    started: list[Typed]
    workers: list[LocalWorker]

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the shell: kubectl and its plugin are on the PATH, and no database."""
        own = [str(self.stage.cluster.access.kubectl.parent), str(Path(sys.executable).parent)]
        source = map(str, (ROOT / "worker-image", ROOT / "operator", ROOT))
        return {
            **os.environ,
            "PATH": os.pathsep.join([*own, os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join(source),
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.folder / "kubectl"),
            "USER": "ada",
            "LOGNAME": "ada",
        }

    async def types(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end.

        It runs in a thread of this process: to import it anew for each costs a second.
        """
        words = self.command(*arguments)[3:]
        return await asyncio.to_thread(_invoked, words, {**self.environment, **variables})

    def command(self, *arguments: object) -> list[str]:
        """Return a command line; one that names no way goes to the namespace."""
        words = [str(one) for one in arguments]
        ways = {"-n", "--namespace", "--database-url", "--context", "--kubeconfig"}
        here = [] if ways.intersection(words) else ["-n", self.stage.namespace]
        return [sys.executable, "-m", "rowlock.cli", *words, *here]

    async def reads(self, *arguments: object) -> Any:
        """Return the document that a command answers."""
        done = await self.types(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    async def says(self, code: int, text: str, *arguments: object, **variables: str) -> None:
        """Assert what a command says in one line, on stdout if it worked, else on stderr."""
        done = await self.types(*arguments, **variables)
        said = done.stdout if code == 0 else done.stderr
        assert (done.returncode, text in said) == (code, True), (done.stdout, done.stderr)
        assert len(said.splitlines()) == 1, said

    def begins(self, *arguments: object) -> Typed:
        """Start a command."""
        files = [self.folder / f"{kind}-{len(self.started)}" for kind in ("out", "err")]
        with files[0].open("wb") as out, files[1].open("wb") as err:
            process = subprocess.Popen(
                self.command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.environment,
            )
        self.started.append(Typed(process, *files))
        return self.started[-1]

    def worker(self, pod: str) -> LocalWorker:
        """Start a worker of the pool `default`, as if in a Pod of this name."""
        flags = ("--namespace", self.stage.namespace, "--processes", "1", *LONG)
        environment = {"ROWLOCK_POD_NAME": pod, "ROWLOCK_POD_UID": pod}
        log = self.folder / f"{pod}.log"
        self.workers.append(LocalWorker(self.stage.dsn, log, *flags, environment=environment))
        return self.workers[-1]

    def task(self, **fields: Any) -> str:
        """Return an input of an agent for tests."""
        return json.dumps({"folder": str(self.folder), **fields})

    def close(self) -> None:
        """End what is left."""
        for one in self.started:
            if one.process.poll() is None:
                one.process.kill()
            one.process.wait()
        for worker in self.workers:
            worker.destroy()


def _invoked(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = CliRunner().invoke(app, words, env=environment, catch_exceptions=False)
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


PAGE = ROOT / "docs" / "how-to" / "use-kubectl-rowlock.md"


def documented_roles() -> dict[str, str]:
    """Return the Roles of the how-to page, by their names."""
    [block] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {yaml.safe_load(text)["metadata"]["name"]: text for text in block.split("---\n")}


def kubeconfig_of(stage: Stage, account: str, *roles: str) -> Path:
    """Return the kubeconfig of a new service account with these Roles in the namespace.

    Parameters
    ----------
    roles
        Names of those that the how-to page documents.
    """
    stage.kubectl("create", "serviceaccount", account)
    subject = f"--serviceaccount={stage.namespace}:{account}"
    for role in roles:
        stage.cluster.kubectl(
            "-n", stage.namespace, "apply", "-f", "-", input=documented_roles()[role]
        )
        stage.kubectl("create", "rolebinding", f"{account}-{role}", f"--role={role}", subject)
    config = yaml.safe_load(stage.cluster.kubeconfig.read_text())
    token = stage.kubectl("create", "token", account).strip()
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = stage.folder / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(name="person")
async def person_fixture(stage: Stage, tmp_path: Path) -> AsyncIterator[Person]:
    """Somebody with all rights; what she starts is gone at the end."""
    folder = tmp_path / "person"
    folder.mkdir()
    person = Person(stage, stage.cluster.kubeconfig, folder, [], [])
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield person
    finally:
        person.close()
        root.handlers[:] = handlers  # commands set up logging for a process of their own
        root.setLevel(level)
        structlog.reset_defaults()
