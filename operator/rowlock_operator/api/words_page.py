"""The reference page of conditions, reasons, phases and Kubernetes events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from rowlock.states import (
    KUBERNETES_EVENTS,
    ApprovalCondition,
    ApprovalPhase,
    ApprovalReason,
    BatchReason,
    BatchStop,
    ConditionReason,
    ConditionType,
    FailureReason,
    FenceReason,
    Outcome,
    Phase,
    WaitReason,
)

from . import vocabulary
from .markdown import code, page, section, table
from .pool_words import POOL_CONDITIONS, POOL_REASONS

Word = TypeVar("Word", bound=StrEnum)

_INTRO = (
    "Programs look at conditions and reasons; the phase is for people. "
    "Words are only ever added, and none changes its meaning."
)


def words_page() -> str:
    """Return the text of the page.

    Raises
    ------
    LookupError
        `rowlock.states` has a word that `vocabulary` does not explain.
    """
    return page(
        "Conditions and events",
        _INTRO,
        _words("Conditions", "Condition", ConditionType, vocabulary.CONDITIONS),
        _words("Phases", "Phase", Phase, vocabulary.PHASES),
        _words(
            "Why a run does not run now",
            "Reason of Running=False",
            WaitReason,
            vocabulary.WAIT_REASONS,
        ),
        _words(
            "Why a run was taken over",
            "Reason of Resumed=True",
            FenceReason,
            vocabulary.TAKEOVER_REASONS,
        ),
        _words(
            "Why a run failed or was refused",
            "Reason of Succeeded=False",
            FailureReason,
            vocabulary.FAILURE_REASONS,
        ),
        _words("All other reasons", "Reason", ConditionReason, vocabulary.CONDITION_REASONS),
        _words("How good a result is", "status.outcome", Outcome, vocabulary.OUTCOMES),
        _words(
            "Conditions of an AgentRunApproval",
            "Condition",
            ApprovalCondition,
            vocabulary.APPROVAL_CONDITIONS,
        ),
        _words("Phases of an AgentRunApproval", "Phase", ApprovalPhase, vocabulary.APPROVAL_PHASES),
        _words(
            "Why an AgentRunApproval is as it is",
            "Reason of its conditions",
            ApprovalReason,
            vocabulary.APPROVAL_REASONS,
        ),
        _pools(),
        _words(
            "Why a batch starts nothing more",
            "Reason of Succeeded=False",
            BatchStop,
            vocabulary.BATCH_STOPS,
        ),
        _words("How a batch goes", "Reason", BatchReason, vocabulary.BATCH_REASONS),
        _events(),
    )


def _pools() -> str:
    conditions = [(code(type_), meaning) for type_, meaning in POOL_CONDITIONS.items()]
    reasons = [
        (code(type_), code(str(reason)), meaning)
        for (type_, reason), meaning in POOL_REASONS.items()
    ]
    return "\n\n".join(
        (
            section("Conditions of a WorkerPool", table(("Condition", "Meaning"), conditions)),
            section(
                "Reasons of a WorkerPool's conditions",
                table(("Condition", "Reason", "Meaning"), reasons),
            ),
        )
    )


def _words(title: str, column: str, words: type[Word], meanings: Mapping[Word, str]) -> str:
    if unexplained := [word.value for word in words if word not in meanings]:
        raise LookupError(f"{vocabulary.__name__} does not explain {', '.join(unexplained)}")
    rows = [(code(word.value), meanings[word]) for word in words]
    return section(title, table((column, "Meaning"), rows))


def _events() -> str:
    intro = (
        "Events of `events.k8s.io/v1`, about the AgentRun, the AgentRunBatch or the WorkerPool. "
        "They are published after the status says the same, and kept by the API server "
        "for an hour by default: do not build automation on them."
    )
    rows = [
        (code(reason), event.type, event.action, event.meaning)
        for reason, event in KUBERNETES_EVENTS.items()
    ]
    return section("Kubernetes events", intro, table(("Reason", "Type", "Action", "Meaning"), rows))
