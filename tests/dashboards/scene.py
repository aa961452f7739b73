"""An operator and workers that have run, waited, failed, been killed and been cut off."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowlock_operator.kube.resources import AGENTS, WORKER_POOLS
from tests.operators import Stage, eventually, free_port, pool_spec
from tests.prometheus import Prometheus
from tests.wire import Wire, wire_to
from tests.workers import LocalWorker

POOL = "default"
RELEASE = "rowlock-system/rowlock"
AGENTS_OF_THE_SCENE = {
    "ambler": "tests.agents_for_tests:ambler",
    "walker": "tests.agents_for_tests:walker",
    "failing": "tests.agents_for_tests:failing",
    "forbidden": "tests.agents_for_tests:forbidden",
    "sleeper": "tests.waiting_agents:sleeper",
    "refunder": "tests.waiting_agents:refunder",
    "looker": "tests.blocking_for_tests:looker",
    "impatient": "tests.blocking_for_tests:impatient",
}


@dataclass
class Scene:
    """What runs, and what was started."""

    stage: Stage
    prometheus: Prometheus
    wire: Wire
    workers: dict[str, LocalWorker] = field(default_factory=dict)
    numbers: Any = field(default_factory=itertools.count)

    async def worker(self, name: str, *, dsn: str, lease: int = 3) -> LocalWorker:
        """Start a worker of two processes with leases of seconds; wait until it is scraped."""
        port = free_port()
        flags = (
            *("--namespace", self.stage.namespace, "--pool", POOL, "--metrics-port", str(port)),
            *("--processes", "2", "--slots", "16"),
            *("--lease-seconds", str(lease), "--renew-seconds", "1"),
        )
        log = self.stage.folder / f"{name}.log"
        self.workers[name] = LocalWorker(dsn, log, *flags)
        labels = {"namespace": self.stage.namespace, "pool": POOL, "instance": name}
        self.prometheus.scrape(port, rowlock_release=RELEASE, component="worker", **labels)
        await self.prometheus.finds(f'rowlock_slots{{instance="{name}"}}')
        return self.workers[name]

    async def start(
        self, agent: str, *, count: int = 1, spec: dict[str, Any] | None = None, **task: Any
    ) -> list[str]:
        """Create AgentRuns of an agent, and return their names."""
        names = [f"{agent}-{next(self.numbers)}" for _ in range(count)]
        given = {"text": json.dumps({"folder": str(self.stage.folder), **task})}
        await self.stage.runs(names, agentRef={"name": agent}, input=given, **(spec or {}))
        return names

    async def counted(self, metric: str) -> None:
        """Wait until Prometheus has seen a counter above zero."""
        await self.prometheus.finds(f"{metric} > 0")

    async def walking(self, times: int) -> int:
        """Wait until the walker's step began so many times, and return the last one's pid."""

        async def look() -> int:
            file = self.walk / "effects"
            begun = file.read_text().splitlines() if file.exists() else []
            return int(begun[-1].split()[-1]) if len(begun) >= times else 0

        return await eventually(look, f"the walker at its gate for the {times}. time")

    @property
    def walk(self) -> Path:
        """Folder of the walker alone."""
        return self.stage.folder / "walk"


@contextlib.asynccontextmanager
async def on_stage(stage: Stage) -> AsyncIterator[Scene]:
    """Start Prometheus and an operator, and create a pool and its agents."""
    prometheus = Prometheus(stage.folder / "prometheus")
    async with wire_to(stage.dsn) as wire:
        with prometheus.running():
            scene = Scene(stage, prometheus, wire)
            await stage.create(WORKER_POOLS, POOL, spec=pool_spec())
            for name, entrypoint in AGENTS_OF_THE_SCENE.items():
                await stage.create(AGENTS, name, spec={"entrypoint": entrypoint})
            operator = await stage.operator()
            labels = {"component": "operator", "namespace": "rowlock-system"}
            prometheus.scrape(
                operator.port, rowlock_release=RELEASE, instance="operator-0", **labels
            )
            try:
                await scene.worker("worker-0", dsn=stage.dsn)
                yield scene
            finally:
                for worker in scene.workers.values():
                    worker.destroy()


async def play(scene: Scene) -> None:
    """Let happen what dashboards are looked at for."""
    stage = scene.stage
    worker = scene.workers["worker-0"]
    await everyday(scene)
    scene.walk.mkdir()
    await scene.start("walker", gates=[0], folder=str(scene.walk))
    os.kill(await scene.walking(1), signal.SIGKILL)
    await scene.counted('rowlock_process_ends_total{how="died"}')
    await scene.walking(2)
    second = await scene.worker("worker-1", dsn=scene.wire.url, lease=30)
    read = scene.wire.stop_at("history", "before")
    worker.destroy()
    await read.reached()
    read.drop()
    await scene.counted("rowlock_store_errors_total")
    await scene.counted('rowlock_takeovers_total{instance="worker-1"}')
    (scene.walk / "gate-0").touch()
    await scene.wire.close()
    await scene.counted("rowlock_round_errors_total")
    await scene.wire.reopen()
    await scene.worker("worker-2", dsn=stage.dsn)
    await scene.start("ambler", count=10)
    # Only here: the count of a worker goes with it, and no other one brings the label.
    await scene.start("forbidden")
    await scene.counted("rowlock_rejected_rows_total")
    assert second.process.poll() is None, second.log[-4000:]


async def everyday(scene: Scene) -> None:
    """Let runs succeed, fail, sleep, ask, and block."""
    await scene.start("ambler", count=20)
    await scene.start("failing", steps=9, spec={"maxAttempts": 1})
    await scene.start("sleeper", seconds=3600)
    await scene.start("refunder")
    await scene.start("looker", count=3)
    await scene.start("impatient")
    await scene.counted("rowlock_operator_runs_failed_total")
    await scene.counted('rowlock_operator_runs_finished_total{status="Succeeded"}')
    await scene.counted("rowlock_runs_parked_total")


async def load(scene: Scene, seconds: float) -> None:
    """Start runs without a pause for so long, as a busy day does in small."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await scene.start("ambler", count=6, steps=20)
        await asyncio.sleep(1)
