"""An object that an older, looser definition let in can still be worked with.

The definitions here have a group of their own, so that no other test sees them change.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rowlock_operator.api.agentrun import AgentRun
from rowlock_operator.api.crd import crd

from .server import DEFINITIONS, JSON, Objects

pytestmark = pytest.mark.cluster

_LOOSENED = ("maximum", "maxLength", "pattern", "enum", "x-kubernetes-validations")

#: What the present definition refuses, and the field that an older one let in with it.
INVALID: dict[str, JSON] = {
    "maxAttempts": {"maxAttempts": 21},
    "agentRef.name": {"agentRef": {"name": "Triage.v2"}},
    "desiredStateReason": {"desiredStateReason": "x" * 257},
    "input": {"input": {}},
}


@dataclass(frozen=True)
class Tightening:
    """A definition that was looser when its objects were made."""

    runs: Objects
    names: dict[str, str]


@pytest.fixture(scope="module")
def tightened(runs: Objects) -> Iterator[Tightening]:
    """One object for each entry of `INVALID`, made before the definition was tightened."""
    group = f"ratchet-{uuid.uuid4().hex[:8]}.rowlock.dev"
    old = replace(runs, group=group)
    definition = _in_group(crd(AgentRun), group)
    old.api.install(_loosened(definition))
    names = {field: old.make(spec, {"phase": "Queued"}) for field, spec in INVALID.items()}
    names["backoff"] = old.make({"retryBackoffSeconds": 9, "maxRetryBackoffSeconds": 1})
    old.api.install(definition)
    old.api.wait_for(lambda: not old.create(INVALID["input"], dry=True).ok, "the new rules hold")
    yield Tightening(old, names)
    old.api.call("DELETE", f"{DEFINITIONS}/{definition['metadata']['name']}")


def _in_group(definition: JSON, group: str) -> JSON:
    moved = copy.deepcopy(definition)
    moved["spec"]["group"] = group
    moved["metadata"]["name"] = f"{definition['spec']['names']['plural']}.{group}"
    return moved


def _loosened(node: Any) -> Any:
    if isinstance(node, list):
        return [_loosened(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _loosened(value) for key, value in node.items() if key not in _LOOSENED}


@pytest.mark.parametrize("field", INVALID)
def test_new_object_with_it_is_refused(tightened: Tightening, field: str) -> None:
    """The tighter rule holds for everybody who comes now."""
    assert not tightened.runs.create(INVALID[field], dry=True).ok


@pytest.mark.parametrize("field", INVALID)
def test_rest_of_an_old_object_can_change(tightened: Tightening, field: str) -> None:
    """A field that is invalid by now does not stand in the way of cancelling the run."""
    changed = tightened.runs.change(tightened.names[field], {"desiredState": "Cancel"})

    assert changed.message == ""


@pytest.mark.parametrize("field", [*INVALID, "backoff"])
def test_status_of_an_old_object_can_be_written(tightened: Tightening, field: str) -> None:
    """The mirror can show what becomes of it, whatever is wrong with its spec."""
    written = tightened.runs.patch(
        tightened.names[field], {"status": {"phase": "Failed"}}, sub="/status"
    )

    assert written.message == ""


def test_other_invalid_value_is_refused(tightened: Tightening) -> None:
    """What is invalid may stay, not become invalid in another way."""
    refused = tightened.runs.change(
        tightened.names["desiredStateReason"], {"desiredStateReason": "y" * 258}
    )

    assert "Too long" in refused.message


def test_rule_over_two_fields_must_be_mended_with_the_next_change(tightened: Tightening) -> None:
    """A rule of the whole spec is judged anew with each change of it: never tighten one lightly."""
    refused = tightened.runs.change(tightened.names["backoff"], {"desiredState": "Cancel"})

    assert "retryBackoffSeconds must not exceed maxRetryBackoffSeconds" in refused.message


def test_old_object_can_be_deleted(tightened: Tightening) -> None:
    """Nothing keeps an invalid object."""
    name = tightened.names["backoff"]
    path = f"{tightened.runs.path}/{name}"

    assert tightened.runs.api.call("DELETE", path, dryRun="All").ok
