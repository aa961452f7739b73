"""The object that stands for a question; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rowlock.store.questions import Question
from rowlock_operator.approvals.identity import approval_name
from rowlock_operator.approvals.summary import summary
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.conditions import timestamp
from rowlock_operator.kube.resources import AGENT_RUN_APPROVALS, AGENT_RUNS
from rowlock_operator.kube.text import cut

_NAME_BYTES: Final = 128


def name_of(question: Question) -> str:
    """Return the name of the question's object."""
    return approval_name(
        question.name,
        uid=question.uid,
        step_key=question.step_key,
        digest=question.digest,
        attempt=question.attempt,
    )


def manifest(question: Question) -> dict[str, Any]:
    """Return the object as it is created: it belongs to its AgentRun, and goes with it."""
    owner = {
        "apiVersion": AGENT_RUNS.api_version,
        "kind": AGENT_RUNS.kind,
        "name": question.name,
        "uid": question.uid,
        "controller": True,
    }
    return {
        "apiVersion": AGENT_RUN_APPROVALS.api_version,
        "kind": AGENT_RUN_APPROVALS.kind,
        "metadata": {
            "name": name_of(question),
            "namespace": question.namespace,
            "ownerReferences": [owner],
        },
        "spec": _spec(question),
    }


def shows(seen: Seen, question: Question) -> bool:
    """Tell whether an object says what the question asks, word for word.

    Whoever may create such objects could make one of the right name with a harmless summary;
    a decision about what a person has not been shown must not count.
    """
    said = {key: value for key, value in seen.spec.items() if key != "decision"}
    return seen.owner == question.uid and said == _spec(question)


def _spec(question: Question) -> Mapping[str, Any]:
    spec: dict[str, Any] = {
        "runRef": {"name": question.name},
        "tool": cut(question.tool, _NAME_BYTES),
        "callID": cut(question.step_key, _NAME_BYTES),
        "digest": question.digest,
        "summary": summary(question.tool, question.question),
    }
    if question.expires_at is not None:
        spec["expirationTime"] = timestamp(question.expires_at)
    return spec
