"""Waiting for the API server and PostgreSQL at start, and giving up with one clear line."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock.errors import ConfigurationError, RowlockError
from rowlock.store.connection import COMMAND_SECONDS, Connection
from rowlock_operator.kube.client import METADATA_LIST, METADATA_ONLY, KubeClient
from rowlock_operator.kube.errors import ClusterTooOld, CRDsMissing, Denied, NotFound
from rowlock_operator.kube.resources import (
    AGENT_RUN_APPROVALS,
    AGENT_RUN_BATCHES,
    AGENT_RUNS,
    AGENTS,
    NAMESPACES,
    WORKER_POOLS,
)
from rowlock_operator.lifecycle.loops import backoff

log = structlog.get_logger(__name__)
T = TypeVar("T")

#: The first release whose API servers can select by fields of our kinds without being asked to.
OLDEST_CLUSTER: Final = (1, 32)


class StartFailed(RowlockError):
    """Something that the operator needs did not come in time."""


async def patiently(
    what: str, attempt: Callable[[], Awaitable[T]], *, within: float, clock: Clock | None = None
) -> T:
    """Return what `attempt` returns, trying again while its error is one that may pass.

    Parameters
    ----------
    what
        Whom we wait for, in the log and the error.
    within
        Seconds after which to give up.

    Raises
    ------
    ConfigurationError
        At once: waiting would not help.
    StartFailed
        It did not come in time.
    """
    chosen = clock or SystemClock()
    began, tries = chosen.monotonic(), 0
    while True:
        try:
            return await attempt()
        except RowlockError as error:
            if isinstance(error, ConfigurationError) or not error.retryable:
                raise
            tries += 1
            waited = chosen.monotonic() - began
            if waited >= within:
                raise StartFailed(f"{what} is still away after {waited:.0f} s: {error}") from error
            wait = min(backoff(tries), within - waited + 0.05)
            log.warning("Waiting at start", for_=what, error=str(error), waited=round(waited, 1))
            await chosen.sleep(wait)


async def open_connection(dsn: str, name: str, *, patience: float = COMMAND_SECONDS) -> Connection:
    """Open one connection to the operator's database.

    Parameters
    ----------
    patience
        Seconds after which a statement without an answer is given up.
    """
    return await Connection.open(dsn, name=f"operator {name}", command_timeout=patience)


async def check_cluster(client: KubeClient) -> None:
    """Check that the API server is new enough; one that hides its release is believed to be.

    Raises
    ------
    ClusterTooOld
        It is not.
    """
    try:
        answer = await client.get("/version")
    except (Denied, NotFound):
        log.info("The API server does not tell its release")
        return
    if too_old(answer):
        needed = ".".join(map(str, OLDEST_CLUSTER))
        raise ClusterTooOld(
            f"Kubernetes {answer['major']}.{answer['minor']} is too old:"
            f" Rowlock needs {needed} or newer"
        )


def too_old(answer: Any) -> bool:
    """Tell whether an answer of `/version` is of a release before `OLDEST_CLUSTER`."""
    fields = answer if isinstance(answer, dict) else {}
    # Vendors write a minor version as "31+".
    parts = [re.match(r"\d+", str(fields.get(name, ""))) for name in ("major", "minor")]
    numbers = tuple(int(part[0]) for part in parts if part)
    return len(numbers) == len(parts) and numbers < OLDEST_CLUSTER


async def check_api(client: KubeClient, namespaces: Sequence[str]) -> None:
    """Check that our kinds exist and that we may list them.

    Raises
    ------
    CRDsMissing
        The server does not know them.
    """
    for resource in (AGENT_RUNS, AGENTS, WORKER_POOLS, AGENT_RUN_APPROVALS, AGENT_RUN_BATCHES):
        for namespace in namespaces or (None,):
            try:
                await client.get(
                    resource.path(namespace), params={"limit": "1"}, accept=METADATA_LIST
                )
            except NotFound:
                raise CRDsMissing(
                    f"the API server does not know {resource.plural}.{resource.group}:"
                    " install the chart rowlock-crds, or apply crds/"
                ) from None


async def cluster_id(client: KubeClient, given: str) -> str:
    """Return the name of this cluster in the database: `given`, or kube-system's uid."""
    if given:
        return given
    try:
        item = await client.get(NAMESPACES.path(name="kube-system"), accept=METADATA_ONLY)
    except Denied:
        raise ConfigurationError(
            "this service account may not read the namespace kube-system:"
            " grant it, or set ROWLOCK_CLUSTER_ID to a name of this cluster that never changes"
        ) from None
    return str(item["metadata"]["uid"])
