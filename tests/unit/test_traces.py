"""Traces of runs: the same ids everywhere, and what a step calls is part of its run's trace."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

import rowlock
from rowlock import traces
from rowlock.agents.record import Record
from rowlock.states import EventKind, FinalStatus, Phase, Place
from rowlock.store.reading import HistoryRow, RunInfo
from rowlock.store.types import LifecycleEvent, RunId, RunSnapshot
from rowlock.testing import CrashAt, Point, Trial
from rowlock_operator.traces.story import Span, story

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN = RunId(4711)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def row(  # one row of history, at a second
    seq: int, kind: EventKind, key: str | None, second: float, epoch: int, **record: Any
) -> HistoryRow:
    body = msgspec.json.encode(Record(args="a", **record))
    took = 500 if kind is EventKind.STEP_DONE else None
    return HistoryRow(seq, epoch, 1, kind, key, 1, at(second), took, len(body), body)


def info(**changes: Any) -> RunInfo:
    given = {
        "id": RUN, "agent": "support", "key": None, "priority": 0, "phase": Phase.SUCCEEDED,
        "attempt": 1, "takeovers": 1, "worker": "w-b", "created_at": at(0), "started_at": at(1),
        "due_at": None, "finished_at": at(9), "reason": None, "message": None, "outcome": "ok",
        "tokens_in": 7, "tokens_out": 3, "cost_micro": 12,
    }  # fmt: skip
    return RunInfo(**{**given, **changes})


def snapshot() -> RunSnapshot:
    lost = {
        "from": "w-a", "to": "w-b", "reason": "WorkerDied", "epoch": 1,
        "claimed_at": at(1), "at": at(4),
    }  # fmt: skip
    event = LifecycleEvent(3, 2, 1, EventKind.TAKEN_OVER, at(5), msgspec.json.encode(lost))
    return RunSnapshot(
        run_id=RUN, cluster="c", uid="u", namespace="team", name="case", generation=1,
        place=Place.FINAL, revision=9, epoch=2, attempt=1, takeovers=1, max_takeovers=0,
        created_at=at(0), agent_revision="r", claimed_at=at(5), started_at=at(1), worker="w-b",
        status=FinalStatus.SUCCEEDED, finished_at=at(9), lifecycle=(event,),
    )  # fmt: skip


ROWS = [
    row(1, EventKind.STEP_DONE, "look#ab.0", 2, 1),
    row(2, EventKind.STEP_INTENT, "refund#cd.0", 3, 1),
    row(3, EventKind.TAKEN_OVER, None, 5, 2),
    row(4, EventKind.STEP_FAILED, "refund#cd.0", 6, 2, again=True, error="busy"),
    row(5, EventKind.STEP_DONE, "refund#cd.0", 8, 2, usage=(4, 1, 0)),
]


def by_name(spans: list[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.name, []).append(span)
    return found


def test_a_history_becomes_spans_of_queue_leases_and_steps() -> None:
    spans = by_name(story(snapshot(), info(), ROWS))

    [root], [queue] = spans["run support"], spans["queue"]
    assert (root.start, root.end, root.error) == (at(0), at(9), "")
    assert [moment.name for moment in root.moments] == ["taken over"]
    assert (queue.start, queue.end, queue.parent) == (at(0), at(1), root.id)
    [lost], [held] = spans["lease 1"], spans["lease 2"]
    assert (lost.start, lost.end, lost.error) == (at(1), at(4), "WorkerDied")
    assert (held.start, held.end, held.error) == (at(5), at(9), "")
    [look] = spans["step look"]
    assert (look.start, look.end, look.parent) == (at(1.5), at(2), lost.id)


def test_an_interrupted_call_and_its_repetition_are_two_spans_of_one_step() -> None:
    done, interrupted = by_name(story(snapshot(), info(), ROWS))["step refund"]

    assert (done.end, done.error) == (at(8), "")
    assert done.attributes["gen_ai.usage.input_tokens"] == 4
    assert (interrupted.start, interrupted.end) == (at(3), at(4)), "until its worker was lost"
    assert interrupted.error == "interrupted"
    assert interrupted.id != done.id


def test_all_ids_of_a_trace_differ_and_none_is_zero() -> None:
    spans = story(snapshot(), info(), ROWS)

    assert len({span.id for span in spans} | {0}) == len(spans) + 1
    assert {span.trace_id for span in spans} == {traces.trace_id(RUN)}


def test_arguments_results_and_prompts_are_in_no_span() -> None:
    secret = row(1, EventKind.STEP_DONE, "look#ab.0", 2, 1, result=msgspec.Raw(b'"s3cr3t"'))

    assert "s3cr3t" not in repr(story(snapshot(), info(), [secret]))


def test_a_body_that_cannot_be_read_costs_only_its_attributes() -> None:
    broken = [one._replace(body=b"{nonsense") for one in ROWS] + [ROWS[0]._replace(body=None)]

    assert len(story(snapshot(), info(), broken)) > 6


def test_a_run_that_has_not_ended_has_no_trace() -> None:
    unfinished = replace(snapshot(), finished_at=None)

    assert story(unfinished, info(finished_at=None), ROWS) == []


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.5, 1.0])
def test_everybody_keeps_the_same_share_of_traces(ratio: float) -> None:
    sampler = TraceIdRatioBased(ratio)
    for run in range(1, 500):
        of_run = traces.trace_id(run)
        theirs = sampler.should_sample(None, of_run, "run").decision
        assert traces.is_kept(of_run, ratio) == (theirs is Decision.RECORD_AND_SAMPLE)


async def test_what_a_step_calls_joins_the_trace_of_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a crash it is the same span again: the call is the same."""
    monkeypatch.setattr(traces.Joining, "join", traces.join_steps())
    seen: list[trace.SpanContext] = []

    @rowlock.tool(side_effects="idempotent")
    async def pay(run: rowlock.Run) -> str:
        seen.append(trace.get_current_span().get_span_context())
        return "paid"

    @rowlock.agent(name="payer")
    async def payer(run: rowlock.Run) -> str:
        outside = trace.get_current_span().get_span_context()
        assert not outside.is_valid
        return await run.step("pay", pay, key="k")

    trial = await Trial.begin(payer)
    await trial.run(crash_at=CrashAt(Point.AFTER_EFFECT, "pay"))
    await trial.run()

    assert trial.result == "paid"
    assert len(seen) == 2
    assert {one.trace_id for one in seen} == {traces.trace_id(trial.run_id)}
    [span] = {one.span_id for one in seen}
    recorded = [e for e in trial.history if e.kind is EventKind.STEP_DONE]
    [key] = [event.key for event in recorded]
    assert span == traces.step_span(trial.run_id, key, 1, 1)
