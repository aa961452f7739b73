"""Questions to people and their objects: names, texts, what follows from a decision; no I/O."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from rowlock import options
from rowlock.agents.questions import make_question
from rowlock.engine.answers import Answers
from rowlock.options import RunOptions
from rowlock.states import ApprovalCondition, Decision, ParkReason, Place
from rowlock.store.questions import Question
from rowlock.store.types import Answer, Asked, RunId, RunSnapshot
from rowlock_operator.api.agent import AgentApproval, ApprovalTimeout
from rowlock_operator.api.agentrun import RunApproval
from rowlock_operator.api.agentrunapproval import AgentRunApproval
from rowlock_operator.approvals.agenda import Agenda
from rowlock_operator.approvals.identity import approval_name
from rowlock_operator.approvals.manifest import manifest, name_of
from rowlock_operator.approvals.standing import (
    Step,
    approval_status,
    given,
    next_step,
    settled,
    standing,
)
from rowlock_operator.approvals.summary import summary
from rowlock_operator.approvals.telling import news_of
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.intake.silence import with_silence
from rowlock_operator.kube.conditions import condition_of
from rowlock_operator.mirror.asking import awaiting_approval, pending_approval

T0 = datetime(2026, 9, 1, 10, tzinfo=UTC)
DIGEST = "0123456789abcdef"
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def asked(**more: Any) -> Question:
    """Return an open question about a refund."""
    fields: dict[str, Any] = {
        "uid": "uid-1",
        "namespace": "team",
        "name": "support-1",
        "run_id": RunId(77),
        "step_key": "refund:1.0",
        "digest": DIGEST,
        "attempt": 1,
        "tool": "refund",
        "question": b'{"tool":"refund","arguments":{"order_id":"A1","cents":100}}',
        "asked_at": T0,
        "expires_at": T0 + timedelta(hours=1),
        "decided_at": None,
        "decision": None,
        "by": "",
        "reason": "",
        "live_attempt": 1,
        "options": b"{}",
        "newer": False,
    }
    return Question(**(fields | more))


def answered(decision: Decision, by: str = "ada", reason: str = "", **more: Any) -> Question:
    """Return a question that has its answer."""
    return asked(decision=decision, by=by, reason=reason, decided_at=T0, **more)


def seen(
    question: Question | None = None, *, decision: dict[str, Any] | None = None, **more: Any
) -> Seen:
    """Return a question's object as a watch shows it."""
    body = manifest(question or asked())
    body["metadata"] |= {"uid": "object-1", "generation": 1, "resourceVersion": "5"}
    if decision is not None:
        body["spec"] = {**body["spec"], "decision": {"digest": DIGEST, **decision}}
        body["metadata"]["generation"] = 2
    return replace(seen_from(body, "AgentRunApproval"), **more)


YES = {"action": "Approve", "decidedBy": "ada"}
NO = {"action": "Deny", "decidedBy": "ada", "reason": "too much"}


# ------------------------------------------------------------------ identity


@drawn(st.from_regex(LABEL, fullmatch=True).filter(lambda name: len(name) <= 63))
def test_name_is_a_dns_label_that_begins_with_the_run(run: str) -> None:
    name = approval_name(run, uid="u", step_key="s", digest="d", attempt=1)
    assert LABEL.fullmatch(name)
    assert len(name) <= 63
    assert name.startswith(run[:50])


def test_each_question_has_a_name_of_its_own_and_always_the_same() -> None:
    others = [
        asked(uid="uid-2"), asked(step_key="refund:1.1"), asked(digest="f" * 16), asked(attempt=2),
    ]  # fmt: skip
    names = [name_of(question) for question in [asked(), *others]]
    assert len(set(names)) == 5
    assert name_of(asked(decision=Decision.DENIED, live_attempt=None)) == names[0]


def test_manifest_is_what_the_kind_allows_and_belongs_to_the_run() -> None:
    body = manifest(asked())
    read = AgentRunApproval.model_validate(body)
    assert read.spec.to_dict() == body["spec"]
    assert read.spec.decision is None
    assert body["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "rowlock.dev/v1alpha1",
            "kind": "AgentRun",
            "name": "support-1",
            "uid": "uid-1",
            "controller": True,
        }
    ]
    assert "expirationTime" not in manifest(asked(expires_at=None))["spec"]


# ------------------------------------------------------------------ summary


def stored(arguments: Any, note: str = "") -> bytes:
    """Return a question as it stands in the database."""
    raw = msgspec.json.encode(arguments)
    return make_question("k", "refund", raw, note=note).shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"order_id": "A1", "cents": 100}, 'refund(order_id="A1", cents=100)'),
        ({}, "refund()"),
        (["A1", 100], 'refund("A1", 100)'),
        ({"to": {"name": "Zoë"}, "ok": True}, 'refund(to={"name": "Zoë"}, ok=true)'),
        ({"api_key": "k-1", "cents": 1}, "refund(api_key=***, cents=1)"),
        ({"auth": {"Password": "x", "user": "u"}}, 'refund(auth={"Password": "***", "user": "u"})'),
        ({"x": [{"token": "t"}]}, 'refund(x=[{"token": "***"}])'),
        ({"x": "a\u202eb\x1b[31m"}, 'refund(x="a\\u202eb\\u001b[31m")'),
        ({"x": None}, "refund(x=null)"),
    ],
)
def test_summary_shows_the_call(arguments: Any, shown: str) -> None:
    assert summary("refund", stored(arguments)) == shown


def test_a_long_argument_hides_no_other() -> None:
    long = summary("refund", stored({"text": "x" * 5_000, "cents": 100}))
    assert long.endswith(", cents=100)")
    many = summary("refund", stored({f"argument_{n}": "y" * 90 for n in range(200)}))
    assert max(len(long.encode()), len(many.encode())) <= 1024


def test_a_note_follows_and_has_room() -> None:
    text = summary("refund", stored({"text": "x" * 5_000}, note="Approve to repeat it."))
    assert text.endswith(". Approve to repeat it.")


@drawn(st.text(max_size=2000), st.dictionaries(st.text(max_size=50), st.text(max_size=500)))
def test_summary_is_one_printable_line_within_its_bounds(
    note: str, arguments: dict[str, str]
) -> None:
    text = summary("refund", stored(arguments, note))
    assert len(text.encode()) <= 1024
    assert text.isprintable()


def test_what_cannot_be_read_shows_the_tool() -> None:
    assert summary("refund", b"\xff not JSON") == "refund()"


# ------------------------------------------------------------------ what is to be done


@pytest.mark.parametrize(
    ("question", "item", "step"),
    [
        (asked(), None, Step.CREATE),
        (answered(Decision.APPROVED), None, Step.NOTHING),
        (asked(live_attempt=None), None, Step.NOTHING),
        (asked(), seen(), Step.SHOW),
        (asked(), seen(decision=YES), Step.DECIDE),
        (asked(), seen(decision=YES, deleting=True), Step.NOTHING),
        (asked(), seen(decision=YES, owner="uid-2"), Step.SHOW),
        (asked(), seen(asked(tool="mail"), decision=YES), Step.SHOW),
        (asked(newer=True), seen(decision=YES), Step.SHOW),
        (asked(live_attempt=2), seen(decision=YES), Step.SHOW),
        (answered(Decision.DENIED), seen(decision=YES), Step.SHOW),
    ],
)
def test_next_step(question: Question, item: Seen | None, step: Step) -> None:
    assert next_step(question, item) is step


SHOWN: list[tuple[Question | None, Seen, tuple[str, str, str]]] = [
    (asked(), seen(), ("Pending", "False/OpenQuestion", "Unknown/NoDecision")),
    (asked(), seen(decision=YES), ("Pending", "False/OpenQuestion", "Unknown/OpenQuestion")),
    (
        answered(Decision.APPROVED),
        seen(decision=YES),
        ("Approved", "True/Approved", "True/Counted"),
    ),
    (
        answered(Decision.DENIED, reason="too much"),
        seen(decision=NO),
        ("Denied", "True/Denied", "True/Counted"),
    ),
    (
        answered(Decision.DENIED, by="eve"),
        seen(decision=NO),
        ("Denied", "True/Denied", "False/AlreadyDecided"),
    ),
    (answered(Decision.APPROVED), seen(), ("Approved", "True/Approved", "Unknown/NoDecision")),
    (
        answered(Decision.EXPIRED, by="expiry"),
        seen(decision=YES),
        ("Expired", "True/Expired", "False/Expired"),
    ),
    (asked(live_attempt=None), seen(), ("Withdrawn", "False/RunFinished", "Unknown/NoDecision")),
    (
        asked(live_attempt=2),
        seen(decision=YES),
        ("Withdrawn", "False/NewAttempt", "False/NewAttempt"),
    ),
    (
        asked(newer=True),
        seen(decision=YES),
        ("Withdrawn", "False/StaleDigest", "False/StaleDigest"),
    ),
    (None, seen(decision=YES), ("Withdrawn", "False/NotAsked", "False/NotAsked")),
    (
        asked(),
        seen(asked(question=b"{}"), decision=YES),
        ("Withdrawn", "False/NotAsked", "False/NotAsked"),
    ),
]


@pytest.mark.parametrize(("question", "item", "words"), SHOWN)
def test_status_says_how_it_stands(
    question: Question | None, item: Seen, words: tuple[str, str, str]
) -> None:
    stands = standing(question, item)
    status = approval_status(stands, question, item, now=T0)
    found = [condition_of(status, type_) for type_ in ApprovalCondition]
    assert (status["phase"], *(f"{it['status']}/{it['reason']}" for it in found)) == words
    assert status["observedGeneration"] == item.generation
    assert ("decidedTime" in status) == (question is not None and question.decision is not None)
    AgentRunApproval.model_validate({**manifest(asked()), "status": status})
    shown = replace(item, status=status)
    assert approval_status(standing(question, shown), question, shown, now=T0) == status
    assert settled(shown) == (words[0] != "Pending")


def test_a_late_decision_unsettles() -> None:
    item = seen(answered(Decision.DENIED))
    status = approval_status(standing(answered(Decision.DENIED), item), None, item, now=T0)
    assert settled(replace(item, status=status))
    assert not settled(replace(item, status=status, generation=2))


def test_a_decision_that_the_database_cannot_store_is_made_storable() -> None:
    said = given(seen(decision={"action": "Deny", "decidedBy": "a\x00b", "reason": "\x00no"}))
    assert said is not None
    assert (said.by, said.reason) == ("ab", "no")


@pytest.mark.parametrize(
    ("question", "event"),
    [
        (asked(), ("ApprovalRequested", 'refund(order_id="A1", cents=100)')),
        (answered(Decision.APPROVED), ("ApprovalDecided", "approved by ada")),
        (answered(Decision.DENIED, reason="no"), ("ApprovalDecided", "denied by ada: no")),
        (
            answered(Decision.EXPIRED),
            ("ApprovalExpired", "nobody decided in time, which counts as denied"),
        ),
        (asked(live_attempt=None), None),
    ],
)
def test_what_is_announced(question: Question, event: tuple[str, str] | None) -> None:
    said = news_of(standing(question, seen()), question, seen())
    if event is None:
        assert said is None
        return
    assert said is not None
    name = name_of(question)
    assert (said.reason, said.note) == (event[0], f"{name}: {event[1]}")
    assert said.approval == name
    assert said.name == f"support-1.uid-1.{event[0].lower()}.{int(name[-12:], 16)}"


# ------------------------------------------------------------------ silence


@pytest.mark.parametrize(
    ("run", "agent", "own", "seconds", "approves"),
    [
        (None, None, None, None, False),
        (None, None, 60, 60, False),
        (5, None, None, 5, False),
        (None, 10, None, 10, False),
        (20, 10, None, 20, False),
        (5, 10, 60, 60, False),
        (None, -10, None, 10, True),
        (5, -10, None, 10, True),
        (20, -10, None, 20, True),
        (None, -10, 5, 10, True),
        (None, -10, 60, 60, True),
    ],
)
def test_where_silence_is_a_yes_nothing_makes_it_come_sooner(
    run: int | None, agent: int | None, own: int | None, seconds: int | None, approves: bool
) -> None:
    """A negative number of the Agent's stands for onTimeout: Approve."""
    on_timeout = ApprovalTimeout.APPROVE if agent and agent < 0 else ApprovalTimeout.DENY
    chosen = with_silence(
        RunOptions(),
        run=RunApproval(timeout_seconds=run) if run else None,
        agent=AgentApproval(timeout_seconds=abs(agent), on_timeout=on_timeout) if agent else None,
    )
    assert options.decode(options.encode(chosen)) == chosen
    assert chosen.silence_approves is approves
    assert chosen.expires_in(own) == seconds


@pytest.mark.parametrize(
    ("silence_approves", "repeats", "approved"),
    [(False, False, False), (True, False, True), (True, True, False)],
)
def test_silence_never_repeats_a_call_that_may_have_happened(
    silence_approves: bool, repeats: bool, approved: bool
) -> None:
    question = make_question("pay:1", "pay", b"{}", repeats=repeats)
    answer = Answer("pay:1", question.digest, 1, Decision.EXPIRED, "expiry", "")
    answers = Answers([answer], (), attempt=1, silence_approves=silence_approves)
    reply = answers.reply(answer, question)
    assert (reply.approved, reply.expired) == (approved, True)
    shown = answered(
        Decision.EXPIRED,
        question=question.shown,
        options=options.encode(RunOptions(silence_approves=silence_approves)),
    )
    word = "approved" if approved else "denied"
    assert standing(shown, seen(shown)).message.endswith(f"counts as {word}")


# ------------------------------------------------------------------ the run's own status


def parked(*questions: Asked, reasons: tuple[str, ...] = (ParkReason.APPROVAL,)) -> RunSnapshot:
    """Return a run that waits."""
    return RunSnapshot(
        RunId(77), "c", "uid-1", "team", "support-1", 1, Place.PARKED, 5, 1, 1, 0, 5, T0, "v",
        parked_for=reasons, questions=questions, ready_at=T0,
    )  # fmt: skip


ONE = Asked("refund:1.0", DIGEST, "refund", T0)
TWO = Asked("refund:1.1", DIGEST, "refund", None)


def test_a_run_names_the_object_to_decide() -> None:
    pending = pending_approval(parked(ONE, TWO))["pendingApproval"]
    assert pending["name"] == name_of(asked())
    assert (pending["tool"], pending["digest"]) == ("refund", DIGEST)
    assert pending["expirationTime"] == "2026-09-01T10:00:00Z"
    assert "expirationTime" not in pending_approval(parked(TWO))["pendingApproval"]
    awaits = awaiting_approval(parked(ONE, TWO))
    assert awaits.status is True
    assert awaits.message == f"refund: AgentRunApproval {name_of(asked())}, and 1 more"


def test_a_run_names_the_newest_question_about_a_step() -> None:
    newer = replace(ONE, digest="f" * 16)
    pending = pending_approval(parked(ONE, newer))["pendingApproval"]
    assert pending["name"] == name_of(asked(digest="f" * 16))
    assert "more" not in awaiting_approval(parked(ONE, newer)).message


def test_a_suspended_run_with_all_its_answers_waits_for_nobody() -> None:
    held = (ParkReason.APPROVAL, ParkReason.SUSPENDED)
    assert awaiting_approval(parked(reasons=held)).status is False
    assert pending_approval(parked(reasons=held)) == {}
    assert awaiting_approval(parked(ONE, reasons=held)).status is True
    assert awaiting_approval(parked(reasons=(ParkReason.SLEEP,))).status is False


# ------------------------------------------------------------------ agenda


def test_what_is_marked_while_it_is_looked_at_is_looked_at_again() -> None:
    agenda = Agenda()
    agenda.mark(["a", "b", "c"])
    assert agenda.take(now=0, limit=2) == ["a", "b"]
    agenda.mark(["a"])
    agenda.done("a")
    agenda.done("b")
    assert sorted(agenda.take(now=0, limit=9)) == ["a", "c"]
    assert len(agenda) == 0


def test_what_fails_is_put_off_for_longer_each_time_until_it_is_marked() -> None:
    agenda, waits = Agenda(), []
    now = 0.0
    for _ in range(8):
        waits.append(agenda.again("a", now=now))
        assert agenda.take(now=now + waits[-1] - 0.1, limit=9) == []
        now += waits[-1]
        assert agenda.take(now=now, limit=9) == ["a"]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    agenda.again("a", now=now)
    agenda.mark(["a"])
    assert agenda.take(now=now, limit=9) == ["a"]
    agenda.done("a")
    assert agenda.again("a", now=now) == 0.5


async def test_a_wait_ends_with_the_first_mark() -> None:
    agenda = Agenda()
    agenda.mark(["a"])
    await agenda.wait(now=0, at_most=3600)
    agenda.take(now=0, limit=9)
    agenda.again("a", now=0)
    await agenda.wait(now=0.5, at_most=3600)
    assert agenda.take(now=0.5, limit=9) == ["a"]
    agenda.wake()
    await agenda.wait(now=0, at_most=3600)
