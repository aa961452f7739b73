"""What of an AgentRunApproval can be written, by whom and when: each rule, with its message."""

from __future__ import annotations

from typing import Any

import pytest

from .server import JSON, Objects, Reply

pytestmark = pytest.mark.cluster

DIGEST, OTHER = "0123456789ab", "ba9876543210"
BATCH = {"batch": "nightly", "item": "item-1"}
#: What the operator writes at the creation: a value, and another one.
FIXED: dict[str, tuple[Any, Any]] = {
    "runRef": ({"name": "triage-1"}, {"name": "triage-2"}),
    "tool": ("mail", "refund"),
    "callID": ("mail:1.0", "mail:1.1"),
    "digest": (DIGEST, OTHER),
    "summary": ("mail(to=1)", "mail(to=2)"),
    "expirationTime": ("2026-09-01T10:00:00Z", "2026-09-02T10:00:00Z"),
}
REQUIRED = {"tool", "digest"}


def decision(**more: Any) -> JSON:
    """Return a decision that can be written."""
    return {"action": "Approve", "decidedBy": "ada", "digest": DIGEST, **more}


@pytest.fixture(scope="module")
def full(approvals: Objects) -> str:
    """An approval that has every field that is fixed."""
    return approvals.make({field: first for field, (first, _) in FIXED.items()})


@pytest.fixture(scope="module")
def bare(approvals: Objects) -> str:
    """An approval that has nothing but what is required."""
    return approvals.make()


def test_it_is_created_without_a_decision(approvals: Objects) -> None:
    """Whoever may create one cannot decide in the same breath."""
    refused = approvals.create({"decision": decision()}, dry=True)

    assert "an approval is created without a decision" in refused.message


@pytest.mark.parametrize(
    ("spec", "ok"),
    [
        ({}, True),
        ({"runRef": None, "batchItemRef": BATCH}, True),
        ({"runRef": None}, False),
        ({"batchItemRef": BATCH}, False),
    ],
    ids=["run", "item", "neither", "both"],
)
def test_it_names_a_run_or_an_item_of_a_batch(approvals: Objects, spec: JSON, ok: bool) -> None:
    """Exactly one asks."""
    reply = approvals.create(spec, dry=True)

    assert reply.ok == ok
    assert ok or "exactly one of runRef, batchItemRef" in reply.message


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"batch": "b" * 63, "item": "i" * 40}, ""),
        ({"batch": "b" * 64, "item": "i"}, "batch: Too long: may not be more than 63 bytes"),
        ({"batch": "b", "item": "i" * 41}, "item: Too long: may not be more than 40 bytes"),
        ({"batch": "b"}, "item: Required value"),
        ({"item": "i"}, "batch: Required value"),
    ],
    ids=["longest", "batch", "item", "no-item", "no-batch"],
)
def test_item_of_a_batch_has_bounds(approvals: Objects, item: JSON, message: str) -> None:
    """Both names are there, and no longer than such names are."""
    reply = approvals.create({"runRef": None, "batchItemRef": item}, dry=True)

    assert reply.ok == (not message)
    assert message in reply.message


@pytest.mark.parametrize("field", FIXED)
def test_fixed_field_cannot_change(approvals: Objects, full: str, field: str) -> None:
    """Another value is refused; the same one again is no change."""
    first, second = FIXED[field]

    assert approvals.change(full, {field: first}).message == ""
    assert f"{field} is immutable: only decision may be set" in (
        approvals.change(full, {field: second}).message
    )


@pytest.mark.parametrize("field", sorted(FIXED.keys() - REQUIRED))
def test_fixed_field_cannot_go(approvals: Objects, full: str, field: str) -> None:
    """To remove an optional field is a change, too."""
    refused = approvals.change(full, {field: None})

    assert f"{field} is immutable: only decision may be set" in refused.message


@pytest.mark.parametrize("field", sorted(FIXED.keys() - REQUIRED - {"runRef"}))
def test_fixed_field_cannot_come(approvals: Objects, bare: str, field: str) -> None:
    """To add an optional field is a change, too."""
    refused = approvals.change(bare, {field: FIXED[field][0]})

    assert f"{field} is immutable: only decision may be set" in refused.message


def test_item_of_a_batch_cannot_change_come_or_go(approvals: Objects, bare: str) -> None:
    """A question stays with whoever asked it."""
    name = approvals.make({"runRef": None, "batchItemRef": BATCH})
    message = "batchItemRef is immutable: only decision may be set"

    for patch in ({"batchItemRef": {**BATCH, "item": "x"}}, {"batchItemRef": None}):
        assert message in approvals.change(name, patch).message
    assert message in approvals.change(bare, {"batchItemRef": BATCH}).message


@pytest.mark.parametrize("action", ["Approve", "Deny"])
def test_decision_can_be_set_once(approvals: Objects, action: str) -> None:
    """The first decision is taken; after it nothing of it changes, comes or goes."""
    name = approvals.make()
    first = decision(action=action, reason="as agreed")
    other = {"action": "Deny" if action == "Approve" else "Approve", "decidedBy": "bob"}

    assert approvals.change(name, {"decision": first}, dry=False).message == ""
    assert approvals.change(name, {"decision": first}).message == ""
    for patch in (other, {"reason": None}, {"reason": "no"}, {"decidedBy": "eve"}):
        assert "a decision is final" in approvals.change(name, {"decision": patch}).message
    assert "a decision is final" in approvals.change(name, {"decision": None}).message


def test_decision_repeats_the_digest(approvals: Objects, bare: str) -> None:
    """A decision about other arguments is refused before anybody acts on it."""
    refused = approvals.change(bare, {"decision": decision(digest=OTHER)})

    assert "decision.digest must repeat spec.digest: it proves what was decided" in refused.message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decidedBy": "a" * 253, "reason": "r" * 512}, ""),
        ({"reason": ""}, ""),
        ({"decidedBy": "a" * 254}, "decidedBy: Too long: may not be more than 253 bytes"),
        ({"decidedBy": ""}, "decidedBy in body should be at least 1 chars long"),
        ({"reason": "r" * 513}, "reason: Too long: may not be more than 512 bytes"),
        ({"digest": "d" * 81}, "digest: Too long: may not be more than 80 bytes"),
        ({"action": "approve"}, 'supported values: "Approve", "Deny"'),
        ({"action": None}, "action: Required value"),
        ({"decidedBy": None}, "decidedBy: Required value"),
        ({"digest": None}, "digest: Required value"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_decision_has_bounds(approvals: Objects, bare: str, fields: JSON, message: str) -> None:
    """Everything that a person can get wrong in it is named."""
    reply = approvals.change(bare, {"decision": decision(**fields)})

    assert reply.ok == (not message)
    assert message in reply.message


def test_status_is_no_way_round(approvals: Objects, bare: str) -> None:
    """Whoever may write the status decides nothing, and whoever decides writes no status."""
    phase: JSON = {"status": {"phase": "Approved"}}
    both: JSON = {**phase, "spec": {"decision": decision()}}

    def stored(reply: Reply) -> tuple[bool, bool]:
        return "decision" in reply.body["spec"], "phase" in reply.body.get("status", {})

    assert stored(approvals.patch(bare, both, sub="/status", dry=True)) == (False, True)
    assert stored(approvals.patch(bare, both, dry=True)) == (True, False)
