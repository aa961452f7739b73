"""A stage for batches: an operator, real workers with the agent `handle`, the items' fates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

import asyncpg
import pytest

from rowlock_operator.kube.resources import AGENT_RUN_BATCHES, AGENTS, EVENTS, WORKER_POOLS
from tests.operators import Stage, condition, eventually, pool_spec
from tests.workers import LocalWorker

#: Generous: a machine of the CI is slow, and a batch is many runs.
WITHIN = 120.0


class BatchStage:
    """A stage on which batches are carried out."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.workers: list[LocalWorker] = []

    async def basics(self, **agent: Any) -> None:
        """Create the Agent `handle` and the WorkerPool `default`."""
        await self.stage.create(WORKER_POOLS, "default", spec=pool_spec())
        spec = {"entrypoint": "tests.batch_agents:handle", **agent}
        await self.stage.create(AGENTS, "handle", spec=spec)

    async def operator(self, **variables: str) -> Any:
        """Start an operator that shows batches often."""
        shown = {"batch_status_seconds": "0.3", **variables}
        return await self.stage.operator(wait=True, **shown)

    def worker(self, *flags: str) -> LocalWorker:
        """Start a worker."""
        log = self.stage.folder / f"worker-{len(self.workers)}.log"
        environment = {
            "BATCH_FOLDER": str(self.stage.folder),
            "ROWLOCK_BATCH_FOLDER": str(self.stage.folder / "items"),
        }
        flags = (
            *("--namespace", self.stage.namespace, "--processes", "1"),
            *("--lease-seconds", "5", "--renew-seconds", "1", *flags),
        )
        started = LocalWorker(self.stage.dsn, log, *flags, environment=environment)
        self.workers.append(started)
        return started

    async def batch(self, name: str, items: Iterable[str] | None = None, **spec: Any) -> None:
        """Create a batch of the Agent `handle`; items are texts, numbered from 1 on."""
        given: dict[str, Any] = {"runTemplate": {"agentRef": {"name": "handle"}}, **spec}
        if items is not None:
            given["items"] = [{"id": f"i-{n}", "text": text} for n, text in enumerate(items, 1)]
        await self.stage.create(AGENT_RUN_BATCHES, name, spec=given)

    async def shows(self, name: str, within: float = WITHIN, **wanted: Any) -> dict[str, Any]:
        """Wait until the status of a batch has these fields, and return it."""

        async def look() -> dict[str, Any] | None:
            status = await self.stage.status(name, AGENT_RUN_BATCHES)
            fits = status and all(status.get(key) == value for key, value in wanted.items())
            return status if fits else None

        try:
            return await eventually(look, f"batch {name} with {wanted}", within)
        except AssertionError as error:
            status = await self.stage.status(name, AGENT_RUN_BATCHES)
            error.add_note(f"it shows {json.dumps(status, indent=1)}")
            error.add_note(self.stage._said())
            error.add_note("".join(worker.log[-4000:] for worker in self.workers))
            raise

    async def announced(self, name: str, *reasons: str) -> list[dict[str, Any]]:
        """Wait until the Events about a batch have these reasons, and return them."""

        async def look() -> list[dict[str, Any]] | None:
            found = [
                item
                for item in await self.stage.objects(EVENTS)
                if item["regarding"].get("name") == name
                and item["regarding"]["kind"] == "AgentRunBatch"
            ]
            found.sort(key=lambda item: item["eventTime"])
            return found if [item["reason"] for item in found] == list(reasons) else None

        return await eventually(look, f"Events {reasons} of {name}", WITHIN)

    def config_map(self, name: str, lines: Iterable[str]) -> dict[str, Any]:
        """Make a ConfigMap of lines, and return an `itemsFrom` that names it."""
        file = self.stage.folder / f"{name}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        self.stage.kubectl("create", "configmap", name, f"--from-file=all={file}")
        return {"configMapKeyRef": {"name": name, "key": "all"}}

    async def ends(self, name: str, **wanted: Any) -> dict[str, Any]:
        """Wait for a batch's end, and return its status."""

        async def look() -> bool:
            status = await self.stage.status(name, AGENT_RUN_BATCHES)
            return bool(status and condition(status, "Finished")["status"] == "True")

        await self.shows(name, **wanted)
        await eventually(look, f"the end of batch {name}", WITHIN)
        return await self.stage.status(name, AGENT_RUN_BATCHES)

    def starts(self) -> Counter[str]:
        """Return how often each item was begun, by the first word of its text."""
        return Counter(word for what, _, word in self.effects() if what == "start")

    def effects(self) -> list[list[str]]:
        """Return the fields of each effect."""
        file = self.stage.folder / "effects"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def open_gate(self, name: str) -> None:
        """Let the items `gate-NAME-…` go on."""
        (self.stage.folder / f"gate-{name}").touch()

    def most_at_once(self, prefix: str) -> int:
        """Return how many items whose text begins so had begun and not ended at one time."""
        now = most = 0
        for what, _, word in self.effects():
            if word.startswith(prefix):
                now += 1 if what == "start" else -1
                most = max(most, now)
        return most

    async def items(self, name: str) -> list[asyncpg.Record]:
        """Return the rows of a batch's items."""
        return await self.stage.sql.fetch(
            "SELECT i.* FROM rowlock.batch_item i JOIN rowlock.batch b USING (batch_id)"
            " WHERE b.name = $1 ORDER BY i.place",
            name,
        )

    def destroy(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.destroy()


def line(number: int, text: str) -> str:
    """Return an item as a line."""
    return json.dumps({"id": f"i-{number}", "text": text})


@pytest.fixture(name="batches")
async def batches_fixture(stage: Stage) -> AsyncIterator[BatchStage]:
    """A stage for batches; its workers are gone at the end."""
    made = BatchStage(stage)
    try:
        yield made
    finally:
        made.destroy()
