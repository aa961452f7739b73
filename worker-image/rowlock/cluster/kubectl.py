"""The one place that runs `kubectl`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rowlock.cluster.refusals import refusal
from rowlock.errors import ConfigurationError

#: For one question and its answer; watches and logs have no such limit.
_PATIENCE: Final = "--request-timeout=30s"
#: Of one line that kubectl prints: an object, or a line that a program logged.
_LONGEST_LINE: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl with one context and namespace.

    Parameters
    ----------
    context, kubeconfig, namespace
        As kubectl's flags of these names; None leaves each to kubectl.
    """

    context: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None

    async def ask(self, *arguments: str, given: str | None = None) -> str:
        """Return what kubectl prints.

        Parameters
        ----------
        given
            Its standard input.

        Raises
        ------
        ClusterError, ConfigurationError
            It ended with an error.
        """
        process = await self._start(_PATIENCE, *arguments, stdin=PIPE if given else DEVNULL)
        try:
            out, err = await process.communicate(given.encode() if given else None)
        finally:
            await _end(process)
        if process.returncode:
            raise refusal(err.decode(errors="replace"))
        return out.decode(errors="replace")

    async def read(self, *arguments: str) -> dict[str, Any]:
        """Return the object or the list that `kubectl get` finds.

        Raises
        ------
        NotInCluster, ClusterError, ConfigurationError
            There is none, or kubectl ended with another error.
        """
        found: dict[str, Any] = json.loads(await self.ask("get", *arguments, "-o", "json"))
        return found

    async def patch(self, resource: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Merge `body` into an object and return it.

        Raises
        ------
        NotInCluster, ClusterForbids, ClusterRefuses, ClusterError
            There is none, or it must not be changed so.
        """
        change = json.dumps(body)
        said = await self.ask("patch", resource, name, "--type=merge", "-p", change, "-o", "json")
        changed: dict[str, Any] = json.loads(said)
        return changed

    async def create(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object and return it.

        Raises
        ------
        AlreadyInCluster, ClusterForbids, ClusterRefuses, ClusterError
            There is one of that name, or it must not be created.
        """
        said = await self.ask("create", "-f", "-", "-o", "json", given=json.dumps(item))
        created: dict[str, Any] = json.loads(said)
        return created

    async def lines(self, *arguments: str) -> AsyncIterator[str]:
        """Yield the lines that kubectl prints, as it prints them, until it ends.

        Raises
        ------
        ClusterError, ConfigurationError
            It ended with an error.
        """
        process = await self._start(*arguments, stdin=DEVNULL)
        assert process.stdout is not None  # noqa: S101  it is a pipe
        assert process.stderr is not None  # noqa: S101
        # Read beside the lines: a full pipe would stop kubectl.
        said = asyncio.ensure_future(process.stderr.read())
        try:
            async for line in process.stdout:
                yield line.decode(errors="replace").rstrip("\n")
            if await process.wait():
                raise refusal((await said).decode(errors="replace"))
        finally:
            await _end(process)
            await said

    async def _start(self, *arguments: str, stdin: int) -> Process:
        flags = {
            "--context": self.context,
            "--kubeconfig": self.kubeconfig,
            "--namespace": self.namespace,
        }
        typed = [f"{flag}={value}" for flag, value in flags.items() if value is not None]
        try:
            return await asyncio.create_subprocess_exec(
                *("kubectl", *arguments, *typed),
                stdin=stdin,
                stdout=PIPE,
                stderr=PIPE,
                limit=_LONGEST_LINE,
            )
        except FileNotFoundError:
            raise ConfigurationError(
                "kubectl is not on the PATH: it is what speaks to the cluster"
            ) from None
        except OSError as error:
            raise ConfigurationError(f"kubectl cannot be run: {error.strerror}") from error


async def _end(process: Process) -> None:
    """End a kubectl whose answer nobody waits for any more."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
