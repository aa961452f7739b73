"""Start a run by creating its AgentRun."""

from __future__ import annotations

from typing import Any, Final

from rowlock.cluster.kubectl import Kubectl
from rowlock.cluster.names import (
    AGENT_RUNS,
    AGENTS,
    API_VERSION,
    WORKER_POOLS,
    keyed_name,
    prefix,
    run_name,
)
from rowlock.cluster.objects import Object, name_of, spec_of
from rowlock.commands.shapes import Started
from rowlock.commands.sides import Starting
from rowlock.errors import (
    AlreadyInCluster,
    ClusterForbids,
    ClusterRefuses,
    IdempotencyConflict,
    InvalidRequest,
    NotInCluster,
    TooLarge,
    UnknownAgent,
    UnknownPool,
)

#: Of `spec.input.text`; more than that stands in a ConfigMap, or in the database.
_LONGEST_INPUT: Final = 65_536


async def start(kubectl: Kubectl, asked: Starting) -> Started:
    """Create the AgentRun; with an idempotency key the same one again.

    Raises
    ------
    UnknownAgent, UnknownPool, InvalidRequest, TooLarge, IdempotencyConflict, ClusterError
        Nothing was created.
    """
    body = manifest(asked)
    await _must_be_there(kubectl, AGENTS, asked.agent, UnknownAgent)
    if asked.pool:
        await _must_be_there(kubectl, WORKER_POOLS, asked.pool, UnknownPool)
    try:
        made = await kubectl.create(body)
    except AlreadyInCluster:
        return await _before(kubectl, asked, body)
    except ClusterRefuses as error:
        raise InvalidRequest(str(error)) from None
    return Started(name_of(made), asked.agent, created=True)


def manifest(asked: Starting) -> dict[str, Any]:
    """Return the AgentRun.

    Raises
    ------
    InvalidRequest, TooLarge
        No AgentRun can say that.
    """
    if ":" in asked.agent:
        raise InvalidRequest(
            f"agent: through the cluster an Agent's name is given, not {asked.agent[:80]!r}"
        )
    if asked.text is not None and len(asked.text) > _LONGEST_INPUT:
        raise TooLarge(
            f"--input: {len(asked.text)} characters, and an AgentRun holds {_LONGEST_INPUT}: "
            "start it through the database, or name a ConfigMap in a manifest"
        )
    return {
        "apiVersion": API_VERSION,
        "kind": "AgentRun",
        "metadata": _metadata(asked),
        "spec": _spec(asked),
    }


def _metadata(asked: Starting) -> dict[str, str]:
    if asked.name is not None:
        return {"name": run_name(asked.name, "--name")}
    if asked.idempotency_key is not None:
        return {"name": keyed_name(asked.agent, asked.idempotency_key)}
    return {"generateName": prefix(asked.agent)}


def _spec(asked: Starting) -> dict[str, Any]:
    settable = {
        "input": None if asked.text is None else {"text": asked.text},
        "workerPoolRef": None if asked.pool is None else {"name": asked.pool},
        "concurrencyKey": asked.key,
        "idempotencyKey": asked.idempotency_key,
        "priority": asked.priority or None,
    }
    given = {name: value for name, value in settable.items() if value is not None}
    return {"agentRef": {"name": asked.agent}, **given}


async def _before(kubectl: Kubectl, asked: Starting, body: Object) -> Started:
    """Return the run that holds the idempotency key, if it was asked for the same."""
    name = str(body["metadata"]["name"])
    if asked.idempotency_key is None:
        raise InvalidRequest(f"--name: there is a run {name} already")
    there = spec_of(await kubectl.read(AGENT_RUNS, name))
    same = ("agentRef", "input", "idempotencyKey")
    if any(there.get(field) != body["spec"].get(field) for field in same):
        raise IdempotencyConflict(
            f"the idempotency key {asked.idempotency_key!r} belongs to run {name}, "
            "which has another input"
        )
    return Started(name, asked.agent, created=False)


async def _must_be_there(
    kubectl: Kubectl, resource: str, name: str, missing: type[UnknownAgent] | type[UnknownPool]
) -> None:
    """An AgentRun of an unknown Agent waits for it; who types a name wants to know at once."""
    kind = "agent" if resource == AGENTS else "pool"
    try:
        found = await kubectl.read(resource)
    except ClusterForbids:
        return  # the right to create runs is enough
    except NotInCluster:
        found = {"items": []}
    names = sorted(name_of(one) for one in found["items"])
    if name in names:
        return
    there = f"those known are {', '.join(names[:50])}" if names else "there is none"
    where = f" in namespace {kubectl.namespace!r}" if kubectl.namespace else ""
    raise missing(f"{kind}: there is no {name!r}{where}; {there}")
