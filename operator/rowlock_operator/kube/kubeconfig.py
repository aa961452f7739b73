"""Reading a kubeconfig file: clusters, users, contexts.

Understood: token, tokenFile, client certificates and CA as data or file, plugins (`exec`),
`insecure-skip-tls-verify`. Several files in KUBECONFIG are merged as kubectl does: the first
definition of a name wins. Relative paths are relative to the file they stand in.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rowlock_operator.kube.credentials import Access, no_token, tls_context
from rowlock_operator.kube.errors import CredentialsError
from rowlock_operator.kube.tokens import FileToken, FixedToken, PluginToken, TokenSource

_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def default_files() -> list[Path]:
    """Return the files that kubectl would read."""
    listed = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    fallback = Path.home() / ".kube" / "config"
    return listed or ([fallback] if fallback.exists() else [])


def load(files: Sequence[Path], *, context: str | None = None) -> Access:
    """Return the access that a context describes.

    Parameters
    ----------
    context
        Name of a context; None for the current one.

    Raises
    ------
    CredentialsError
        A file or what it refers to is missing or malformed; the message says which.
    """
    config = _merged(files)
    name = context or config.get("current-context")
    if not name:
        raise CredentialsError(f"{_listed(files)} names no current context: pass --context")
    chosen = _named(config, "contexts", name, "context")
    cluster = _named(config, "clusters", str(chosen.get("cluster")), "cluster")
    user = _named(config, "users", str(chosen.get("user")), "user") if chosen.get("user") else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise CredentialsError(f"context {name}: the server's URL is missing or malformed")
    return Access(
        server=server,
        tls=_tls(cluster, user) if server.startswith("https://") else None,
        tokens=_tokens(user),
        namespace=str(chosen.get("namespace") or "default"),
    )


def _merged(files: Sequence[Path]) -> dict[str, Any]:
    merged: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    for path in files:
        config = _parsed(path)
        for part in ("clusters", "users", "contexts"):
            merged[part] += [_absolute(entry, path.parent) for entry in config.get(part) or ()]
        merged.setdefault("current-context", config.get("current-context"))
    return merged


def _parsed(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        # A YAML error quotes the file, and the file holds secrets.
        why = error.strerror if isinstance(error, OSError) else "it is not valid YAML"
        raise CredentialsError(f"cannot read the kubeconfig {path}: {why}") from None
    if not isinstance(config, dict):
        raise CredentialsError(f"{path} is no kubeconfig")
    return config


def _absolute(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    for part in ("cluster", "user"):
        inner = entry.get(part)
        if isinstance(inner, dict):
            entry = {**entry, part: {**inner, **_absolute_paths(inner, folder)}}
    return entry


def _absolute_paths(inner: dict[str, Any], folder: Path) -> dict[str, str]:
    return {key: str(folder / inner[key]) for key in _PATHS if inner.get(key)}


def _named(config: dict[str, Any], part: str, name: str, inner: str) -> dict[str, Any]:
    for entry in config[part]:
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry.get(inner) or {}
    raise CredentialsError(f"the kubeconfig has no {inner} named {name!r}")


def _tls(cluster: dict[str, Any], user: dict[str, Any]) -> Any:
    with (
        _file(user, "client-certificate") as certificate,
        _file(user, "client-key") as key,
        _file(cluster, "certificate-authority") as authority,
    ):
        return tls_context(
            ca=authority.read_text() if authority else None,
            certificate=certificate,
            key=key,
            insecure=bool(cluster.get("insecure-skip-tls-verify")),
        )


@contextmanager
def _file(part: dict[str, Any], key: str) -> Iterator[Path | None]:
    """Yield the file of `key`, or of `key`-data: the ssl module reads a key from a file only."""
    data = part.get(f"{key}-data")
    if not data:
        yield _existing(Path(part[key])) if part.get(key) else None
        return
    with tempfile.NamedTemporaryFile(prefix="rowlock-") as file:
        file.write(_decoded(data, key))
        file.flush()
        yield Path(file.name)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise CredentialsError(f"the kubeconfig names the file {path}, which does not exist")
    return path


def _decoded(data: str, key: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise CredentialsError(f"{key}-data in the kubeconfig is not base64") from None


def _tokens(user: dict[str, Any]) -> TokenSource:
    if user.get("tokenFile"):
        return FileToken(Path(user["tokenFile"]))
    if user.get("token"):
        return FixedToken(str(user["token"]))
    plugin = user.get("exec")
    if not isinstance(plugin, dict):
        return no_token()
    if not plugin.get("command"):
        raise CredentialsError("the kubeconfig's exec plugin has no command")
    env = {str(pair["name"]): str(pair["value"]) for pair in plugin.get("env") or ()}
    command = [str(plugin["command"]), *map(str, plugin.get("args") or ())]
    return PluginToken(command, env, str(plugin.get("apiVersion")))


def _listed(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files)) or "no kubeconfig"
