"""Which way a command goes: to the database, or through the cluster.

What is typed wins over the environment; the first that holds decides:

1. `--database-url`: the database;
2. `--cluster`, `--context`, `--kubeconfig`, or called as `kubectl rowlock`: the cluster;
3. `ROWLOCK_DATABASE_URL`: the database;
4. `-n` alone: the cluster.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rowlock.cluster.kubectl import Kubectl
from rowlock.errors import ConfigurationError, InvalidRequest
from rowlock.settings import DatabaseSettings, load

NO_WAY: Final = (
    "ROWLOCK_DATABASE_URL is not set: postgresql://user:password@host:5432/name; "
    "or go through the cluster: --cluster, --context or -n"
)
_PLUGIN: Final = "kubectl-rowlock"


@dataclass(frozen=True, slots=True)
class Flags:
    """What was typed about the way."""

    namespace: str | None = None
    cluster: bool = False
    context: str | None = None
    kubeconfig: str | None = None
    database_url: str | None = None


@dataclass(frozen=True, slots=True)
class ToStore:
    """To the database."""

    url: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class ToCluster:
    """Through the cluster."""

    kubectl: Kubectl


Route = ToStore | ToCluster


def decide(flags: Flags, *, variable: str, called: str) -> Route:
    """Return the way.

    Parameters
    ----------
    variable
        ROWLOCK_DATABASE_URL; empty where it is not set.
    called
        The name under which this program was started.

    Raises
    ------
    InvalidRequest
        Both are asked for.
    ConfigurationError
        Neither is.
    """
    named = {
        "--cluster": flags.cluster,
        "--context": flags.context is not None,
        "--kubeconfig": flags.kubeconfig is not None,
    }
    typed = [flag for flag, given in named.items() if given]
    if flags.database_url is not None:
        if typed:
            raise InvalidRequest(f"--database-url and {typed[0]}: give one of them")
        return ToStore(flags.database_url, flags.namespace)
    if not typed and not Path(called).name.startswith(_PLUGIN):
        if variable:
            return ToStore(variable, flags.namespace)
        if flags.namespace is None:
            raise ConfigurationError(NO_WAY)
    return ToCluster(Kubectl(flags.context, flags.kubeconfig, flags.namespace))


def route(flags: Flags) -> Route:
    """Return the way of a command of this process.

    Raises
    ------
    InvalidRequest, ConfigurationError
        As `decide`.
    """
    variable = load(DatabaseSettings).database_url.get_secret_value()
    return decide(flags, variable=variable, called=sys.argv[0])


def routed(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameter `flags` is given as the flags that choose the way."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.name != "flags"]

    @functools.wraps(command)
    def typed(**given: Any) -> None:
        flags = Flags(**{one.name: given.pop(one.name) for one in fields(Flags)})
        command(flags, **given)

    parameters = [*own, *_OPTIONS]
    # typer reads the signature, and in older versions the annotations.
    typed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    typed.__annotations__ = {one.name: one.annotation for one in parameters}
    return typed


def _option(name: str, kind: Any, default: Any, *declared: str, **more: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(*declared, **more)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


_OPTIONS: Final = (
    _option(
        "namespace", str | None, None, "--namespace", "-n",
        metavar="NAME", help="Of agents and runs; where no database is named, of the cluster.",
    ),
    _option(
        "cluster", bool, False, "--cluster",
        help="Through the cluster with kubectl, as `kubectl rowlock` does.",
    ),
    _option(
        "context", str | None, None, "--context",
        metavar="NAME", help="Through the cluster of this context.",
    ),
    _option(
        "kubeconfig", str | None, None, "--kubeconfig",
        metavar="FILE", help="Through the cluster of this file.",
    ),
    _option(
        "database_url", str | None, None, "--database-url",
        metavar="URL",
        help="This database, not that of ROWLOCK_DATABASE_URL; lists of processes show it.",
    ),
)  # fmt: skip
