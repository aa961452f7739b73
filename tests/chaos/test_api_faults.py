"""One fault after the other between operator and API server: each passes, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rowlock_operator.kube.credentials import Access
from rowlock_operator.kube.errors import Invalid
from rowlock_operator.kube.resources import AGENT_RUNS
from tests.faults import FaultyApi
from tests.operators import LocalOperator, Stage, access, eventually, stage_fixture  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
BROKEN = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd broke"}}


@pytest.fixture
async def faulty(access: Access) -> AsyncIterator[FaultyApi]:  # noqa: F811
    async with FaultyApi(access).serving() as api:
        yield api


@dataclass
class Scene:
    """An operator behind the faulty API server, that no sweep helps."""

    stage: Stage
    api: FaultyApi
    operator: LocalOperator

    async def goes_on(self, name: str) -> None:
        """Assert that a new run is taken in and shown, and that the probes are content."""
        await self.stage.run(name)
        await self.stage.shows(name, reason="WaitingForWorker", within=90)
        assert await self.operator.probe("/livez") == (200, "ok\n")
        assert await self.operator.probe("/readyz") == (200, "ok\n")

    async def watched(self) -> None:
        """Wait until all three kinds are watched."""

        async def look() -> bool:
            return self.api.streams >= 3

        await eventually(look, "three open watches", 90)


async def test_each_fault_of_the_api_server_passes_but_a_broken_watch_ends_the_process(
    stage: Stage, faulty: FaultyApi
) -> None:
    await stage.basics()
    scene = await _scene(stage, faulty)

    faulty.delay = 0.7
    await scene.goes_on("slow")
    faulty.delay = 0

    await scene.watched()
    faulty.hush()
    await scene.goes_on("silent")

    await scene.watched()
    await faulty.say(GONE)
    await scene.goes_on("expired")

    # As the kubelet replaces it, and the server forgets the old one.
    _demand(stage, faulty, "second")
    faulty.drop_streams()
    await scene.goes_on("rotated")

    await scene.goes_on("meddled")
    worker = await stage.worker()
    async with _meddler(stage, "meddled") as written:
        held = await worker.claim_all(5)
        await stage.shows("meddled", phase="Running", within=90)
        await eventually(lambda: asyncio.sleep(0, len(written) >= 10), "ten writes of another")
    await worker.finish(*held)
    await stage.all_show(5, "Succeeded", within=90)
    assert "Meddled" not in str(await stage.status("meddled"))
    await stage.each_announced(
        dict.fromkeys(
            ("slow", "silent", "expired", "rotated", "meddled"),
            ("RunQueued", "RunStarted", "RunSucceeded"),
        )
    )

    async def broke() -> bool:
        await faulty.say(BROKEN)
        return scene.operator.process.poll() is not None

    await eventually(broke, "the end of the process", 90)
    assert await scene.operator.ends(90) == 1
    assert "etcd broke" in scene.operator.log
    await stage.healthy()


async def test_missing_crds_and_rights_are_said_at_the_start(
    stage: Stage, faulty: FaultyApi
) -> None:
    config = str(faulty.kubeconfig(stage.cluster.kubeconfig, stage.folder))
    faulty.fault = _refuses("/apis/rowlock.dev/", 404)
    bare = await stage.operator("--kubeconfig", config, wait=False)
    assert await bare.ends(90) == 2
    assert "rowlock-crds" in bare.log
    assert "Traceback" not in bare.log

    faulty.fault = _refuses("/leases/", 403)
    limited = await stage.operator(
        "--election", "--kubeconfig", config, wait=False, start_timeout_seconds="1"
    )
    assert await limited.ends(90) == 1
    assert f"the Lease {stage.namespace}/rowlock-operator is still away" in limited.log
    assert "Traceback" not in limited.log


async def _scene(stage: Stage, api: FaultyApi) -> Scene:
    config = api.kubeconfig(
        stage.cluster.kubeconfig, stage.folder, token_file=_demand(stage, api, "first")
    )
    operator = await stage.operator(
        *("--kubeconfig", str(config)),
        sweep_seconds="3600",
        watch_silence_seconds="3",
        events_per_second="1000",
    )
    return Scene(stage, api, operator)


def _demand(stage: Stage, api: FaultyApi, token: str) -> Path:
    """Let the server accept this token alone, and write it where the operator reads it."""
    file = stage.folder / "token"
    file.write_text(token)
    api.token = token
    return file


@asynccontextmanager
async def _meddler(stage: Stage, name: str) -> AsyncIterator[list[str]]:
    """Let somebody else write a status inside the block, over and over."""
    path = AGENT_RUNS.path(stage.namespace, name, "status")
    written: list[str] = []

    async def meddle() -> None:
        while True:
            seen = await stage.client.get(AGENT_RUNS.path(stage.namespace, name))
            patch = [
                # Undoing what the operator wrote since is another fault, which the sweep repairs.
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": seen["metadata"]["resourceVersion"],
                },
                {"op": "add", "path": "/status/reason", "value": "Meddled"},
            ]
            with suppress(Invalid):
                await stage.client.json_patch(path, patch, manager="meddler")
                written.append(seen["status"]["phase"])

    meddling = asyncio.create_task(meddle())
    try:
        yield written
    finally:
        meddling.cancel()
        await asyncio.wait({meddling})
    assert meddling.cancelled(), meddling.exception()


def _refuses(part: str, code: int) -> Any:
    def fault(request: web.Request) -> web.Response | None:
        if part not in request.path:
            return None
        said = {"kind": "Status", "code": code, "message": "refused by the test"}
        return web.json_response(said, status=code)

    return fault
