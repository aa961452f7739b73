"""What kubelets would do for the Pods of a WorkerPool, where none run: make them ready.

The API server, its controllers and the scheduler are real; only nodes are missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from rowlock.store import intake, work, workers
from rowlock.store.types import Beat, Claimed, NewRun, NewWorker, PoolId, WorkerId
from rowlock_operator.kube.errors import KubeError
from rowlock_operator.kube.resources import DEPLOYMENTS, EVENTS, PODS, WORKER_POOLS
from tests.operators import Stage, StubWorker, condition, eventually

_tokens = itertools.count(time.monotonic_ns())


def ready(item: dict[str, Any]) -> bool:
    """Tell whether a Pod is ready."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


async def make_ready(stage: Stage, item: dict[str, Any]) -> None:
    """Say of a Pod that it runs and is ready."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    patch: list[dict[str, Any]] = [
        {"op": "add", "path": "/status/phase", "value": "Running"},
        {"op": "add", "path": "/status/conditions", "value": conditions},
    ]
    path = PODS.path(stage.namespace, item["metadata"]["name"], "status")
    await stage.client.json_patch(path, patch, manager="kubelet")


@asynccontextmanager
async def nodes(stage: Stage) -> AsyncIterator[None]:
    """Make every Pod of the namespace ready soon, inside the block."""

    async def serve() -> None:
        while True:
            for item in await stage.objects(PODS):
                if not ready(item):
                    with contextlib.suppress(KubeError):  # it is gone already
                        await make_ready(stage, item)
            await asyncio.sleep(0.1)

    serving = asyncio.create_task(serve())
    try:
        yield
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def replicas(stage: Stage, wanted: int, *, name: str = "default") -> dict[str, Any]:
    """Wait until a pool's Deployment asks for so many replicas."""

    async def look() -> dict[str, Any] | None:
        found = await stage.get(DEPLOYMENTS, f"rowlock-{name}")
        return found if found and found["spec"]["replicas"] == wanted else None

    said = "".join(it.log[-3000:] for it in stage.operators)
    return await eventually(look, f"{wanted} replicas of {name}; {said}")


async def all_ready(stage: Stage, count: int) -> list[dict[str, Any]]:
    """Wait until so many Pods are there, all of them ready and none ending; return them."""

    async def look() -> list[dict[str, Any]] | None:
        pods = [it for it in await stage.objects(PODS) if "deletionTimestamp" not in it["metadata"]]
        return pods if len(pods) == count and all(map(ready, pods)) else None

    if not count:
        await eventually(lambda: _none(stage), "no Pods")
        return []
    return await eventually(look, f"{count} ready Pods")


async def _none(stage: Stage) -> bool:
    return not await stage.objects(PODS)


async def says(stage: Stage, type_: str, wanted: str, *, name: str = "default") -> str:
    """Wait until a condition of a pool is `Status/Reason`, and return its message."""

    async def look() -> tuple[str] | None:
        status = await stage.status(name, WORKER_POOLS)
        if not status.get("conditions"):
            return None
        found = condition(status, type_)
        right = f"{found['status']}/{found['reason']}" == wanted
        return (found["message"],) if right else None

    said = "".join(it.log[-3000:] for it in stage.operators)
    return (await eventually(look, f"{type_} is {wanted}; {said}"))[0]


async def announced(stage: Stage, reason: str, *, name: str = "default") -> dict[str, Any]:
    """Wait for an Event about a pool."""

    async def look() -> dict[str, Any] | None:
        for item in await stage.objects(EVENTS):
            about = item["regarding"]
            if (about["kind"], about.get("name"), item["reason"]) == ("WorkerPool", name, reason):
                return item
        return None

    return await eventually(look, f"the Event {reason} of {name}")


async def queue(stage: Stage, count: int, *, pool: str = "default") -> PoolId:
    """Queue runs for a pool that no AgentRun stands for."""
    pool_id = await intake.ensure_pool(stage.store, namespace=stage.namespace, name=pool)
    agent, revision = await intake.ensure_agent(
        stage.store,
        namespace=stage.namespace,
        name="load",
        entrypoint="a:b",
        spec=b"{}",
        digest="1",
    )
    new = NewRun(agent, revision, pool_id, input=b"{}", options=b"{}")
    await intake.enqueue(stage.store, [new] * count)
    return pool_id


async def worker_in(stage: Stage, pod: dict[str, Any], *, pool: str = "default") -> StubWorker:
    """Register the worker of a Pod."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    pool_id = await intake.ensure_pool(stage.store, namespace=stage.namespace, name=pool)
    new = NewWorker(pool_id, f"{name}/0", name, 1, "test", lease_seconds=3600, pod_uid=uid)
    [worker_id] = await workers.register(stage.store, [new])
    return StubWorker(stage.store, worker_id, pool_id, name)


async def beat(stage: Stage, worker: WorkerId, **said: Any) -> None:
    """Beat for a worker."""
    numbers = {"slots": 2, "running": 0, "lag_ms": 0, "draining": False, **said}
    assert await workers.beat(stage.store, [Beat(worker, **numbers)])


async def try_claim(stage: Stage, worker: StubWorker, pool: PoolId) -> list[Claimed]:
    """Claim one run if this worker may."""
    found = await work.claim(
        stage.store, worker=worker.worker_id, pool=pool, token=next(_tokens), limit=1
    )
    assert found is not None, "fenced"
    return found
