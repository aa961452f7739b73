"""The rules of AgentRunBatches, each both ways round, with its message."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rowlock_operator.api.agentrunbatch import AgentRunBatch
from rowlock_operator.api.resource import Resource

from .server import JSON, Objects

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "run-a-batch.md"
ITEMS = [{"id": "one", "text": "1"}, {"id": "two", "text": "2"}]
ENTRY: JSON = {"configMapKeyRef": {"name": "items", "key": "all"}}
URI: JSON = {"uri": "https://files.example.test/items.jsonl"}


@pytest.fixture(scope="module")
def batches(objects: dict[type[Resource], Objects]) -> Objects:
    """The AgentRunBatches of the module's namespace."""
    return objects[AgentRunBatch]


@pytest.mark.parametrize(
    ("given", "ok"),
    [
        ({"items": ITEMS}, True),
        ({"items": None, "itemsFrom": ENTRY}, True),
        ({"items": None, "itemsFrom": URI}, True),
        ({"items": None}, False),
        ({"items": ITEMS, "itemsFrom": URI}, False),
    ],
    ids=["items", "configmap", "uri", "none", "both"],
)
def test_items_have_exactly_one_source(batches: Objects, given: JSON, ok: bool) -> None:
    """Items stand in the object or somewhere else."""
    reply = batches.create(given, dry=True)

    assert reply.ok == ok
    assert ok or "exactly one of items, itemsFrom must be set" in reply.message


@pytest.mark.parametrize("source", [{}, {**ENTRY, **URI}], ids=["none", "both"])
def test_another_place_is_exactly_one(batches: Objects, source: JSON) -> None:
    """Items come from a ConfigMap or from a URI."""
    reply = batches.create({"items": None, "itemsFrom": source}, dry=True)

    assert "exactly one of configMapKeyRef, uri must be set" in reply.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": ITEMS[:1]}, "items must not change after creation"),
        ({"items": None, "itemsFrom": URI}, "items must not change after creation"),
        (
            {"runTemplate": {"agentRef": {"name": "other"}}},
            "runTemplate must not change after creation",
        ),
        ({"runTemplate": {"maxAttempts": 3}}, "runTemplate must not change after creation"),
    ],
    ids=["fewer", "elsewhere", "agent", "limit"],
)
def test_work_cannot_change(batches: Objects, change: JSON, message: str) -> None:
    """What was asked for stays."""
    name = batches.make({"items": ITEMS})

    assert message in batches.change(name, change).message


@pytest.mark.parametrize(
    "change",
    [{"itemsFrom": {"uri": "file:///items"}}, {"itemsFrom": None, "items": ITEMS}],
    ids=["other", "none"],
)
def test_source_cannot_change(batches: Objects, change: JSON) -> None:
    """Nor where it is read from."""
    name = batches.make({"items": None, "itemsFrom": URI})

    assert "itemsFrom must not change after creation" in batches.change(name, change).message


@pytest.mark.parametrize("after", ["Run", "Suspend", None])
def test_cancel_is_final(batches: Objects, after: str | None) -> None:
    """A cancelled batch stays cancelled."""
    name = batches.make({"desiredState": "Cancel"})

    refused = batches.change(name, {"desiredState": after})

    assert "desiredState must not leave Cancel" in refused.message


@pytest.mark.parametrize(
    "steps",
    [
        [{"desiredState": "Suspend"}, {"desiredState": "Run"}, {"desiredState": "Cancel"}],
        [{"parallelism": 5}, {"parallelism": None}],
        [{"maxFailedPercent": 5}, {"maxFailedPercent": None}],
        [{"ttlSecondsAfterFinished": 5}, {"ttlSecondsAfterFinished": None}],
    ],
    ids=["wish", "parallelism", "failed", "ttl"],
)
def test_pace_can_change(batches: Objects, steps: list[dict[str, Any]]) -> None:
    """How fast and how far it goes is up to people at any time."""
    name = batches.make()

    assert [batches.change(name, step, dry=False).message for step in steps] == [""] * len(steps)


def test_manifests_of_the_page_are_accepted(batches: Objects) -> None:
    """What people copy works: the whole manifest, and with each of the other sources in it."""
    whole, *sources = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    manifest = yaml.safe_load(whole)
    spec = {key: value for key, value in manifest["spec"].items() if key != "items"}
    others = [{**manifest, "spec": {**spec, **yaml.safe_load(text)}} for text in sources]

    assert len(others) == 2
    assert [batches.post(it, dry=True).message for it in (manifest, *others)] == [""] * 3
