"""Where a bearer token comes from, and when it is read again.

A projected service account token lives for an hour and is replaced in its file;
a plugin's token names its own end.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from rowlock_operator.kube.errors import CredentialsError

_FILE_SECONDS = 60.0
_PLUGIN_SECONDS = 30.0
_EARLY = timedelta(seconds=60)


class TokenSource(Protocol):
    """Gives the token for the next request."""

    async def token(self, *, fresh: bool = False) -> str | None:
        """Return the token; `fresh` reads it again because the server refused the last one."""
        ...


@dataclass(frozen=True, slots=True)
class FixedToken:
    """A token that never changes, or none at all."""

    value: str | None = field(default=None, repr=False)

    async def token(self, *, fresh: bool = False) -> str | None:  # noqa: ARG002
        """Return the token."""
        return self.value


class FileToken:
    """A token in a file that somebody else keeps up to date."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value = ""
        self._read_at = float("-inf")

    async def token(self, *, fresh: bool = False) -> str | None:
        """Return the token, at most a minute old.

        Raises
        ------
        CredentialsError
            The file is missing or empty.
        """
        if fresh or time.monotonic() - self._read_at > _FILE_SECONDS:
            self._value = self._read()
            self._read_at = time.monotonic()
        return self._value

    def _read(self) -> str:
        try:
            value = self._path.read_text().strip()
        except OSError as error:
            raise CredentialsError(f"cannot read the token in {self._path}: {error}") from error
        if not value:
            raise CredentialsError(f"the token file {self._path} is empty")
        return value


class PluginToken:
    """The token of a credential plugin (`users[].user.exec` of a kubeconfig).

    A plugin that answers with a client certificate is refused: no large provider needs that.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], api_version: str) -> None:
        self._command = list(command)
        self._env = dict(env)
        self._api_version = api_version
        self._value: str | None = None
        self._ends_at: datetime | None = None
        self._lock = asyncio.Lock()

    async def token(self, *, fresh: bool = False) -> str | None:
        """Return the token, asking the plugin when it is about to end.

        Raises
        ------
        CredentialsError
            The plugin is missing, failed, or gave no token.
        """
        async with self._lock:
            if fresh or self._value is None or self._is_over():
                self._value, self._ends_at = _parse(await self._run(), self._command[0])
        return self._value

    def _is_over(self) -> bool:
        return self._ends_at is not None and datetime.now(UTC) > self._ends_at - _EARLY

    async def _run(self) -> bytes:
        info = {"apiVersion": self._api_version, "kind": "ExecCredential"}
        info["spec"] = {"interactive": False}  # type: ignore[assignment]
        env = {**os.environ, **self._env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, env=env, stdout=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(_PLUGIN_SECONDS):
                output, _ = await process.communicate()
        except (OSError, TimeoutError) as error:
            raise CredentialsError(f"credential plugin {self._command[0]}: {error!r}") from error
        if process.returncode:
            raise CredentialsError(
                f"credential plugin {self._command[0]} ended with {process.returncode}"
            )
        return output


def _parse(output: bytes, plugin: str) -> tuple[str, datetime | None]:
    try:
        status: dict[str, Any] = json.loads(output)["status"]
        ends = status.get("expirationTimestamp")
        return str(status["token"]), datetime.fromisoformat(ends) if ends else None
    except (ValueError, KeyError, TypeError) as error:
        raise CredentialsError(f"credential plugin {plugin} gave no token") from error
