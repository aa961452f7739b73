"""A batch runs each of its items once, within its limits, and says how it went."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from rowlock_operator.kube.resources import AGENT_RUN_BATCHES, AGENT_RUNS, CONFIG_MAPS
from tests.batches import WITHIN, BatchStage, batches_fixture, line  # noqa: F401
from tests.operators import (  # noqa: F401
    access,
    condition,
    eventually,
    stage_fixture,
    states,
)

pytestmark = pytest.mark.cluster

COUNTS = ("total", "queued", "running", "succeeded", "failed", "cancelled")


async def test_each_item_is_run_once_and_counted(batches: BatchStage) -> None:
    await batches.basics()
    await batches.operator()
    batches.worker()
    await batches.batch("few", [f"ok-{n}" for n in range(100)], ttlSecondsAfterFinished=3600)
    lines = [line(n, f"ok-map-{n}") for n in range(1, 301)]
    await batches.batch("many", itemsFrom=batches.config_map("many", lines))
    status = await batches.ends("few", phase="Succeeded")
    assert [status[name] for name in COUNTS] == [100, 0, 0, 100, 0, 0]
    assert states(status) == {
        "Accepted": "True/Accepted",
        "Suspended": "False/NotSuspended",
        "Finished": "True/Completed",
        "Succeeded": "True/Completed",
    }
    await batches.ends("many", phase="Succeeded", total=300, succeeded=300)
    asked = [f"ok-{n}" for n in range(100)] + [f"ok-map-{n}" for n in range(1, 301)]
    assert batches.starts() == dict.fromkeys(asked, 1)
    [_, ended] = await batches.announced("few", "BatchAccepted", "BatchSucceeded")
    assert ended["note"] == "100 of 100 items succeeded"
    batches.stage.kubectl("wait", "--for=condition=Succeeded", "abatch/few", "--timeout=5s")
    await batches.stage.healthy()
    # Its time after the end: the object goes, and its rows.
    batches.stage.patch("abatch", "few", ttlSecondsAfterFinished=0)

    async def purged() -> bool:
        gone = await batches.stage.get(AGENT_RUN_BATCHES, "few") is None
        return gone and not await batches.items("few")

    await eventually(purged, "the deletion of the batch and its rows", WITHIN)
    assert len(await batches.items("many")) == 300


async def test_a_wrong_item_refuses_its_batch_and_nothing_else(batches: BatchStage) -> None:
    stage = batches.stage
    folder = stage.folder / "items"
    folder.mkdir()
    lines = [line(n, f"ok-wrong-{n}") for n in range(1, 5001)]
    lines[4710] = '{"id": "Upper", "text": "ok-wrong"}'
    (folder / "wrong.jsonl").write_text("\n".join(lines))
    (folder / "twice.jsonl").write_text("\n".join([line(1, "ok-twice"), "", line(1, "ok-twice")]))
    await batches.basics()
    await batches.operator()
    batches.worker()
    await batches.batch("wrong-map", itemsFrom=batches.config_map("wrong", lines))
    await batches.batch("wrong-file", itemsFrom={"uri": f"file://{folder}/wrong.jsonl"})
    await batches.batch("twice", itemsFrom={"uri": f"file://{folder}/twice.jsonl"})
    await batches.batch("outside", itemsFrom={"uri": f"file://{stage.folder}/wrong.jsonl"})
    await batches.batch("password", itemsFrom={"uri": "https://me:secret@files.test/items"})
    missing = {"configMapKeyRef": {"name": "later", "key": "all"}}
    await batches.batch("later", itemsFrom=missing)
    await batches.batch("good", ["ok-good"])
    await batches.ends("good", phase="Succeeded", succeeded=1)
    for name in ("wrong-map", "wrong-file"):
        status = await batches.ends(name, phase="Failed")
        assert states(status)["Accepted"] == "False/InvalidItems"
        assert condition(status, "Accepted")["message"] == (
            "line 4711: id must be a DNS label of at most 40 characters:"
            " a-z, 0-9 and '-', as in issue-17"
        )
    status = await batches.ends("twice", phase="Failed")
    assert condition(status, "Succeeded")["message"] == (
        "line 3: has the id of line 1; each item needs its own"
    )
    status = await batches.ends("outside", phase="Failed")
    assert states(status)["Accepted"] == "False/ItemsUnreadable"
    assert "is not below ROWLOCK_BATCH_FOLDER" in condition(status, "Accepted")["message"]
    status = await batches.ends("password", phase="Failed")
    assert states(status)["Accepted"] == "False/InvalidSpec"
    assert "secret" not in str(status)
    [refused] = await batches.announced("wrong-map", "BatchRefused")
    assert "line 4711" in refused["note"]
    status = await batches.shows("later", phase="Pending")
    assert states(status)["Accepted"] == "Unknown/InputNotFound"
    await stage.create(CONFIG_MAPS, "later", data={"all": line(1, "ok-later")})
    await batches.ends("later", phase="Succeeded", succeeded=1)
    assert batches.starts() == {"ok-good": 1, "ok-later": 1}


async def test_parallelism_and_wishes_of_a_batch_are_kept(batches: BatchStage) -> None:
    await batches.basics()
    await batches.operator()
    batches.worker()
    batches.worker()
    await batches.batch("three", [f"gate-three-{n}" for n in range(12)], parallelism=3)
    await batches.batch("held", ["ok-held"] * 5, desiredState="Suspend")
    await batches.batch("stop", [f"gate-stop-{n}" for n in range(6)], parallelism=2)
    await batches.batch("pause", [f"gate-pause-{n}" for n in range(4)], parallelism=2)
    status = await batches.shows("three", running=3, queued=9)
    assert status["phase"] == "Running"
    assert await batches.stage.count("rowlock.batch_item WHERE run_id IS NOT NULL") == 7
    status = await batches.shows("held", phase="Suspended", total=5, queued=5)
    assert states(status)["Suspended"] == "True/Suspended"
    await batches.shows("stop", running=2)
    await batches.shows("pause", running=2)
    batches.stage.patch("abatch", "stop", desiredState="Cancel")
    status = await batches.ends("stop", phase="Cancelled", cancelled=6)
    assert states(status)["Succeeded"] == "False/Cancelled"
    batches.stage.patch("abatch", "pause", desiredState="Suspend")
    await batches.shows("pause", phase="Suspended")
    batches.open_gate("pause")
    # Those that ran are held at their next step, or had none left when their worker was told.
    await batches.shows("pause", running=0, phase="Suspended")
    begun = [word for word in batches.starts() if word.startswith("gate-pause")]
    assert sorted(begun) == ["gate-pause-0", "gate-pause-1"]
    for name in ("pause", "held"):
        batches.stage.patch("abatch", name, desiredState="Run")
        await batches.ends(name, phase="Succeeded")
    batches.open_gate("three")
    await batches.ends("three", phase="Succeeded", succeeded=12)
    assert batches.most_at_once("gate-three") == 3
    assert batches.most_at_once("gate-stop") == 2
    assert max(batches.starts()[f"gate-three-{n}"] for n in range(12)) == 1
    await batches.stage.healthy()


async def test_too_many_failures_stop_the_rest(batches: BatchStage) -> None:
    await batches.basics()
    await batches.operator()
    batches.worker()
    await batches.batch(
        "bad", [f"fail-bad-{n}" for n in range(20)], parallelism=2, maxFailedPercent=10
    )
    await batches.batch("some", ["fail-some", "ok-some", "ok-some"], maxFailedPercent=50)
    status = await batches.ends("bad", phase="Failed")
    assert states(status)["Succeeded"] == "False/MaxFailedPercentReached"
    assert status["failed"] in (3, 4)
    assert status["cancelled"] == 20 - status["failed"]
    assert len(batches.starts()) <= 4 + 2
    assert status["failedItems"][0] == {"id": "i-1", "reason": "AgentError"}
    assert status["failedItemsTruncated"] is False
    await batches.announced("bad", "BatchAccepted", "BatchStopped", "BatchFailed")
    status = await batches.ends("some", phase="Succeeded", failed=1, succeeded=2)
    assert condition(status, "Succeeded")["message"] == "2 of 3 items succeeded, 1 failed"


async def test_an_item_gets_one_object_whenever_the_operator_dies(batches: BatchStage) -> None:
    stage = batches.stage
    await batches.basics()
    first = await batches.operator()
    batches.worker()
    texts = ["fail-gate-f-1", "fail-gate-f-2", "fail-gate-f-3", "ok-gate-f-4"]
    await batches.batch("failed", texts, materialize="Failed")
    await batches.batch("every", ["ok-e-1", "fail-e-2"], materialize="All", desiredState="Suspend")
    await batches.shows("failed", running=4)
    await batches.shows("every", phase="Suspended", total=2)
    first.kill()
    batches.open_gate("f")

    async def settled() -> bool:
        return [item["status"] for item in await batches.items("failed")] == [2, 2, 2, 1]

    await eventually(settled, "the workers to count what ended", WITHIN)
    # What crashes leave: names without an object, and objects that no row knows yet.
    for batch, item, made in (("failed", 1, 0), ("failed", 2, 1), ("every", 1, 0), ("every", 2, 1)):
        await stage.sql.execute(
            "UPDATE rowlock.batch_item i SET object_name = $3 FROM rowlock.batch b"
            " WHERE b.batch_id = i.batch_id AND b.name = $1 AND i.item = $2",
            *(batch, f"i-{item}", f"{batch}-i-{item}-0000000{item}"),
        )
        if made:
            text = {"input": {"text": texts[1] if batch == "failed" else "fail-e-2"}}
            spec = {"agentRef": {"name": "handle"}, **text}
            await stage.create(AGENT_RUNS, f"{batch}-i-{item}-0000000{item}", spec=spec)
    await batches.operator()
    stage.patch("abatch", "every", desiredState="Run")
    await batches.ends("every", phase="Succeeded", succeeded=1, failed=1)
    rows = [*await batches.items("failed"), *await batches.items("every")]

    async def shown() -> dict[str, str] | None:
        runs = await stage.objects(AGENT_RUNS)
        status = {run["metadata"]["name"]: run.get("status", {}) for run in runs}
        ended = all(it.get("phase") in ("Failed", "Succeeded") for it in status.values())
        return (
            {name: it["runID"] for name, it in status.items()}
            if len(status) == 5 and ended
            else None
        )

    objects = await eventually(shown, f"five AgentRuns that have ended{stage._said()}", WITHIN)
    linked = {item["object_name"]: str(item["run_id"]) for item in await batches.items("failed")}
    linked |= {item["object_name"]: str(item["run_id"]) for item in await batches.items("every")}
    linked.pop(None)
    assert objects == linked
    assert {"failed-i-1-00000001", "failed-i-2-00000002", "every-i-2-00000002"} < objects.keys()
    assert await stage.count("rowlock.run") == 6 == len(rows)
    assert set(batches.starts().values()) == {1}
    # It can be looked at, and run again, as any other AgentRun.
    name = "failed-i-1-00000001"
    stage.patch("arun", name, redrive=1)
    status = await stage.shows(name, redrive=1, phase="Failed", attempt=2, within=WITHIN)
    assert status["failure"]["reason"] == "AgentError"
    assert (await batches.shows("failed"))["failed"] == 3
    await stage.healthy()


async def test_a_deleted_batch_ends_its_items_also_if_nobody_saw_it(batches: BatchStage) -> None:
    stage = batches.stage
    await batches.basics()
    first = await batches.operator()
    batches.worker()
    for name in ("seen", "unseen"):
        await batches.batch(name, [f"gate-{name}-{n}" for n in range(5)], parallelism=2)
        await batches.shows(name, running=2)
    await batches.batch("objects", ["gate-never-1", "ok-2"], parallelism=1, materialize="All")
    await batches.shows("objects", running=1)
    stage.patch("abatch", "objects", desiredState="Cancel")
    await batches.ends("objects", phase="Cancelled", cancelled=2)

    async def ended() -> bool:
        runs = await stage.objects(AGENT_RUNS)
        return {run.get("status", {}).get("phase") for run in runs} == {"Cancelled"}

    await eventually(ended, "the end of every AgentRun", WITHIN)
    stage.kubectl("delete", "abatch", "seen")
    await eventually(_gone(batches, "seen"), "the rows to go", WITHIN)
    first.kill()
    stage.kubectl("delete", "abatch", "unseen")
    assert len(await batches.items("unseen")) == 5
    await batches.operator()
    await eventually(_gone(batches, "unseen"), "the rows to go", WITHIN)
    assert await stage.count("rowlock.run_live") == 0
    cancelled = await stage.count("rowlock.run_final WHERE status = 3")
    assert cancelled == await stage.count("rowlock.run_final") >= 5
    assert not [word for what, _, word in batches.effects() if what == "end"]
    await stage.healthy()


def _gone(batches: BatchStage, name: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        left = await batches.stage.count(f"rowlock.batch WHERE name = '{name}'")
        return left == 0 and not await batches.items(name)

    return look
