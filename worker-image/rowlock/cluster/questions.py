"""Questions to a person, and their answers, as AgentRunApprovals."""

from __future__ import annotations

from typing import Final

from rowlock.cluster.kubectl import Kubectl
from rowlock.cluster.names import APPROVALS
from rowlock.cluster.objects import Object, moment, name_of, ref, spec_of, status_of
from rowlock.cluster.wishes import read
from rowlock.commands.shapes import Answered, QuestionShape
from rowlock.commands.sides import Answer
from rowlock.errors import ClusterRefuses, WishRefused
from rowlock.states import Decision

_LONGEST_REASON: Final = 512


async def open_questions(kubectl: Kubectl, run: str | None) -> list[QuestionShape]:
    """Return the questions that nobody has decided, the oldest first.

    Raises
    ------
    ClusterError, ConfigurationError
        We may not read them, or this cluster knows no AgentRunApproval.
    """
    found = await kubectl.read(APPROVALS)
    asked = [question_shape(it) for it in found["items"] if open_question(it)]
    fits = [one for one in asked if run in (None, one.run)]
    return sorted(fits, key=lambda one: (str(one.asked_at), str(one.name)))


async def answer_to(kubectl: Kubectl, run: str, answer: Answer) -> Answered:
    """Decide the question of a run that is meant; the decision repeats its digest.

    Raises
    ------
    UnknownRun, WishRefused, ClusterError
        There is no such run or question, there are several, or we may not decide it.
    """
    meant = the_one(run, await open_questions(kubectl, run), answer)
    if meant is None:
        await read(kubectl, run)
        about = f" about step {answer.step}" if answer.step else ""
        raise WishRefused(f"run {run} has no open question{about}")
    try:
        await kubectl.patch(APPROVALS, str(meant.name), decision(meant, answer))
    except ClusterRefuses as error:
        raise WishRefused(f"{meant.step}: {error}") from None
    word = answer.decision.name.lower()
    asked = "approve" if answer.decision is Decision.APPROVED else "deny"
    said = f"{meant.step} {word} by {answer.by}"
    return Answered(run, asked, True, said, step=meant.step, digest=meant.digest)


def the_one(run: str, asked: list[QuestionShape], answer: Answer) -> QuestionShape | None:
    """Return the question that is meant; None if there is none.

    Raises
    ------
    WishRefused
        There is more than one, or another than the person has seen.
    """
    meant = [one for one in asked if answer.step in (None, one.step, one.name)]
    if not meant:
        return None
    if len(meant) > 1:
        steps = ", ".join(one.step for one in meant)
        raise WishRefused(f"run {run} has {len(meant)} open questions: name a step of {steps}")
    if answer.digest not in (None, meant[0].digest):
        raise WishRefused(f"the question about {meant[0].step} has digest {meant[0].digest}")
    return meant[0]


def decision(asked: QuestionShape, answer: Answer) -> dict[str, object]:
    """Return the change of an AgentRunApproval that decides it."""
    decided = {
        "action": "Approve" if answer.decision is Decision.APPROVED else "Deny",
        "decidedBy": answer.by,
        "digest": asked.digest,
    }
    if answer.reason:
        decided["reason"] = answer.reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
    return {"spec": {"decision": decided}}


def question_shape(item: Object) -> QuestionShape:
    """Return what an AgentRunApproval asks."""
    spec = spec_of(item)
    return QuestionShape(
        run=ref(spec, "runRef") or _batch_item(spec),
        name=name_of(item),
        step=spec.get("callID") or name_of(item),
        tool=spec.get("tool") or "",
        arguments=None,
        note=spec.get("summary") or "",
        digest=spec.get("digest") or "",
        attempt=None,
        asked_at=moment(item["metadata"].get("creationTimestamp")),
        expires_at=moment(spec.get("expirationTime")),
    )


def open_question(item: Object) -> bool:
    """Tell whether an AgentRunApproval waits for its decision."""
    undecided = not spec_of(item).get("decision")
    return undecided and status_of(item).get("phase") in (None, "Pending")


def _batch_item(spec: Object) -> str:
    item = spec.get("batchItemRef") or {}
    return f"{item.get('batch', '')}/{item.get('item', '')}"
