"""Who may decide: the documented roles, and the policy that makes decidedBy more than a claim."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from rowlock_operator.kube.resources import AGENT_RUN_APPROVALS
from tests.operators import ROOT, Stage, access, eventually, stage_fixture  # noqa: F401

pytestmark = pytest.mark.cluster

MANIFESTS = ROOT / "examples" / "approvals"
ROLES = {"ada": "rowlock-approver", "eve": "rowlock-approver", "ed": "rowlock-edit"}
SPEC = {"runRef": {"name": "asks"}, "tool": "refund", "digest": "0123456789abcdef"}


@pytest.fixture(name="people")
def people_fixture(stage: Stage) -> Iterator[Stage]:
    """Two people who may decide and one who may not, under the policy, in this namespace alone."""
    suffix = stage.namespace.removeprefix("op-")
    made = [*_manifests("roles.yaml", suffix), *_manifests("decided-by-policy.yaml", suffix)]
    for item in made:
        if item["kind"] == "ValidatingAdmissionPolicyBinding":
            only = {"kubernetes.io/metadata.name": stage.namespace}
            item["spec"]["policyName"] += f"-{suffix}"
            item["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": only}}
    text = yaml.safe_dump_all(made)
    stage.cluster.kubectl("apply", "-f", "-", input=text)
    for user, role in ROLES.items():
        bound = f"--clusterrole={role}-{suffix}"
        stage.kubectl("create", "rolebinding", user, bound, f"--user={user}")
    yield stage
    stage.cluster.kubectl("delete", "-f", "-", input=text)


def _manifests(file: str, suffix: str) -> list[dict[str, Any]]:
    items = list(yaml.safe_load_all((MANIFESTS / file).read_text()))
    for item in items:
        item["metadata"]["name"] += f"-{suffix}"
        # Else every edit role of the cluster would gain by this test.
        item["metadata"].pop("labels", None)
    return items


def decide(stage: Stage, name: str, *, user: str, by: str, dry: bool = False) -> tuple[int, str]:
    """Decide as a user; return the exit code and what kubectl said."""
    decision = {"action": "Approve", "decidedBy": by, "digest": SPEC["digest"]}
    patch = json.dumps({"spec": {"decision": decision}})
    flags = ("--dry-run=server",) if dry else ()
    done = stage.cluster.kubectl(
        *("-n", stage.namespace, f"--as={user}", "patch", "aappr", name),
        *("--type=merge", "-p", patch, *flags),
        check=False,
    )
    return done.returncode, done.stderr


def may(stage: Stage, user: str, *what: str) -> bool:
    """Tell whether a user may do something."""
    answer = stage.kubectl("auth", "can-i", *what, f"--as={user}", check=False)
    return answer.strip() == "yes"


async def test_only_an_approver_decides_and_only_in_their_own_name(people: Stage) -> None:
    await people.create(AGENT_RUN_APPROVALS, "asks-1", spec=SPEC)

    async def in_force() -> bool:
        return decide(people, "asks-1", user="eve", by="ada", dry=True)[0] != 0

    await eventually(in_force, "the policy to be in force")
    code, said = decide(people, "asks-1", user="eve", by="ada")
    assert code == 1
    assert "decision.decidedBy must be eve, who asks for this" in said
    code, said = decide(people, "asks-1", user="ed", by="ed")
    assert code == 1
    assert 'cannot patch resource "agentrunapprovals"' in said
    assert "decision" not in (await people.existing(AGENT_RUN_APPROVALS, "asks-1"))["spec"]

    assert decide(people, "asks-1", user="ada", by="ada") == (0, "")
    stored = await people.existing(AGENT_RUN_APPROVALS, "asks-1")
    assert stored["spec"]["decision"]["decidedBy"] == "ada"
    # What is decided can still be labelled by others, and shown by the operator.
    people.kubectl("label", "aappr", "asks-1", "seen=yes", "--as=eve")
    path = AGENT_RUN_APPROVALS.path(people.namespace, "asks-1", "status")
    shown = [{"op": "add", "path": "/status", "value": {"phase": "Approved"}}]
    await people.client.json_patch(path, shown, manager="test")


@pytest.mark.parametrize(
    ("user", "can", "cannot"),
    [
        ("ed", ("create agentruns", "list agentrunapprovals"), ("patch", "create", "delete")),
        ("ada", ("patch agentrunapprovals", "get agentruns"), ("create", "delete")),
    ],
)
def test_a_role_gives_what_it_says(
    people: Stage, user: str, can: tuple[str, ...], cannot: tuple[str, ...]
) -> None:
    assert all(may(people, user, *what.split()) for what in can)
    assert not any(may(people, user, verb, "agentrunapprovals") for verb in cannot)
    assert not may(people, user, "patch", "agentrunapprovals", "--subresource=status")
