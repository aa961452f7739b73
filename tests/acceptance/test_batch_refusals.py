"""Objects that the API server refuses hold up nothing but their own items."""

from __future__ import annotations

import json

import pytest

from rowlock_operator.kube.resources import AGENT_RUNS, EVENTS
from tests.batches import WITHIN, BatchStage, batches_fixture  # noqa: F401
from tests.operators import access, eventually, stage_fixture  # noqa: F401

pytestmark = pytest.mark.cluster

_COUNTED = "count/agentruns.rowlock.dev"


def _full(batches: BatchStage) -> None:
    """Let nobody create an AgentRun, also before a controller has looked at the quota."""
    batches.stage.kubectl("create", "quota", "full", f"--hard={_COUNTED}=0")
    status = {"status": {"hard": {_COUNTED: "0"}, "used": {_COUNTED: "0"}}}
    batches.stage.kubectl(
        *("patch", "quota", "full", "--subresource=status", "--type=merge"),
        *("-p", json.dumps(status)),
    )


async def _refusal(batches: BatchStage, name: str) -> str:
    """Wait for the Event that names what was refused of a batch, and return its note."""

    async def look() -> str | None:
        for item in await batches.stage.objects(EVENTS):
            if item["reason"] == "ItemRefused" and item["regarding"].get("name") == name:
                return str(item["note"])
        return None

    return await eventually(look, f"an Event ItemRefused of {name}", WITHIN)


async def test_refused_objects_hold_up_only_their_own_items(batches: BatchStage) -> None:
    stage = batches.stage
    await batches.basics()
    _full(batches)
    await batches.operator()
    batches.worker()
    await batches.batch("waits", ["ok-w-1", "ok-w-2", "ok-w-3"], materialize="All")
    await batches.batch("stops", ["ok-s-1", "ok-s-2"], materialize="All")
    for name in ("waits", "stops"):
        assert "exceeded quota" in await _refusal(batches, name)
    # Others go on, and a batch whose objects cannot be made can be ended.
    await batches.batch("plain", ["ok-p"])
    await batches.ends("plain", phase="Succeeded", succeeded=1)
    stage.patch("abatch", "stops", desiredState="Cancel")
    await batches.ends("stops", phase="Cancelled", cancelled=2)
    assert await stage.objects(AGENT_RUNS) == []
    stage.kubectl("delete", "quota", "full")
    await batches.ends("waits", phase="Succeeded", succeeded=3)
    assert len(await stage.objects(AGENT_RUNS)) == 3
    assert not [word for word in batches.starts() if word.startswith("ok-s")]
    await stage.healthy()
