"""An API server that throttles, errs and drops watches: slower, but nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from rowlock_operator.kube.credentials import Access
from tests.faults import FaultyApi, now_and_then
from tests.operators import ROOT, Stage, access, eventually, stage_fixture  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
async def faulty(access: Access) -> AsyncIterator[FaultyApi]:  # noqa: F811
    async with FaultyApi(access).serving() as api:
        yield api


async def test_throttling_and_errors_slow_the_operator_down_and_lose_nothing(
    stage: Stage, faulty: FaultyApi
) -> None:
    await stage.basics()
    config = faulty.kubeconfig(stage.cluster.kubeconfig, stage.folder)
    operator = await stage.operator("--kubeconfig", str(config))
    throttled = lambda: web.Response(status=429, headers={"Retry-After": "0.2"})  # noqa: E731
    faulty.fault = now_and_then(throttled, share=0.3, seed=1)
    await stage.runs([f"run-{number}" for number in range(40)])
    await stage.all_show(40, "Queued", within=90)
    assert faulty.faults > 5
    faulty.fault = now_and_then(lambda: web.Response(status=500), share=0.3, seed=2)
    worker = await stage.worker()
    await worker.finish(*await worker.claim_all(40))
    await stage.all_show(40, "Succeeded", within=90)
    faulty.fault = lambda _request: None
    await eventually(
        lambda: stage.sql.fetchval("SELECT count(*) = 0 FROM rowlock.run_change"), "all shown"
    )
    assert operator.process.poll() is None
    await stage.healthy()


async def test_a_write_whose_answer_is_lost_is_not_written_twice(
    stage: Stage, faulty: FaultyApi
) -> None:
    await stage.basics()
    config = faulty.kubeconfig(stage.cluster.kubeconfig, stage.folder)
    await stage.operator("--kubeconfig", str(config))
    lost = 0

    def lose_status_writes(request: web.Request) -> Exception | None:
        nonlocal lost
        if request.method == "PATCH" and request.path.endswith("/status") and lost < 10:
            lost += 1
            return ConnectionError()
        return None

    faulty.fault = lose_status_writes
    await stage.runs([f"run-{number}" for number in range(5)])
    await stage.all_show(5, "Queued")
    assert lost == 10


async def test_dropped_watches_are_opened_again(stage: Stage, faulty: FaultyApi) -> None:
    await stage.basics()
    config = faulty.kubeconfig(stage.cluster.kubeconfig, stage.folder)
    operator = await stage.operator("--kubeconfig", str(config), sweep_seconds="3600")

    async def watched() -> bool:
        return faulty.streams >= 3

    for number in range(3):
        await eventually(watched, "three open watches")
        faulty.drop_streams()
        await stage.run(f"run-{number}")
        await stage.shows(f"run-{number}", reason="WaitingForWorker")
    assert (await operator.probe("/livez"))[0] == 200


@pytest.mark.parametrize(
    ("victim", "what"),
    [
        ("watcher for ", "a dead watcher, which kopf neither restarts nor reports"),
        ("multidimensional multitasker", "the end of kopf"),
    ],
)
async def test_a_source_that_went_lame_is_noticed(stage: Stage, victim: str, what: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.lame_source"),
        *(str(stage.cluster.kubeconfig), stage.namespace, victim),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None

    async def health() -> dict[str, Any]:
        line = await process.stdout.readline()  # type: ignore[union-attr]
        told: dict[str, Any] = json.loads(line)
        return told

    async def alive() -> int:
        told = await health()
        return int(told["watchers"]) if told["alive"] else 0

    async def lame() -> bool:
        told = await health()
        return not told["alive"] and (told["watchers"] == all_ - 1 or told["ended"] is not None)

    try:
        all_ = await eventually(alive, "a watch for each kind")
        await stage.run("trigger")
        await eventually(lame, what)
    finally:
        process.kill()
        await process.wait()
