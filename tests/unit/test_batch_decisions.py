"""What a round does with a batch, and what its status says: decided from counts alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.states import BatchStop, FailureReason, FinalStatus, Materialize, WaitReason
from rowlock.store.batch_objects import may_be_ours, object_name
from rowlock.store.batch_rounds import WINDOW, Decision, Standing, decide
from rowlock.store.batches import BatchId, BatchStatus, items_problem
from rowlock_operator.api.agentrunbatch_status import AgentRunBatchStatus
from rowlock_operator.batches.known import known_batch
from rowlock_operator.batches.materializer import text_of
from rowlock_operator.batches.status import (
    BatchRefused,
    BatchWaits,
    batch_status,
    events,
    refused_status,
    waiting_status,
)
from rowlock_operator.intake.inputs import input_bytes
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.resources import ObjectKey

NOW = datetime(2026, 9, 1, tzinfo=UTC)
GOES = Standing(
    parallelism=10,
    max_failed_percent=10,
    materialize=Materialize.NONE,
    suspended=False,
    sealed=True,
    departed=False,
    stopped=None,
    total=100,
    fed=50,
    failed=0,
    open=4,
)
CANCELLED, DELETED = BatchStop.CANCELLED, BatchStop.DELETED


@pytest.mark.parametrize(
    ("change", "decision"),
    [
        ({}, Decision(6)),
        ({"open": 10}, Decision(0)),
        ({"open": 12}, Decision(0)),
        ({"fed": 98}, Decision(2)),
        ({"parallelism": None}, Decision(50)),
        ({"parallelism": None, "total": 100_000}, Decision(WINDOW - 4)),
        ({"sealed": False}, Decision()),
        ({"sealed": False, "open": 0, "fed": 0, "total": 0}, Decision()),
        ({"suspended": True}, Decision()),
        ({"suspended": True, "fed": 100, "open": 0}, Decision(finished=True)),
        ({"fed": 100}, Decision()),
        ({"fed": 100, "open": 0}, Decision(finished=True)),
        ({"failed": 10}, Decision(6)),
        ({"stopped": CANCELLED}, Decision()),
        ({"stopped": CANCELLED, "open": 0}, Decision(finished=True)),
        ({"stopped": CANCELLED, "open": 0, "sealed": False}, Decision(finished=True)),
        ({"stopped": CANCELLED, "open": 0, "suspended": True}, Decision(finished=True)),
        # Every AgentRun gets its end, unless nobody is there to see it.
        ({"stopped": CANCELLED, "open": 0, "named": True}, Decision(10)),
        ({"stopped": DELETED, "open": 0, "named": True, "departed": True}, Decision(finished=True)),
    ],
    ids=str,
)
def test_what_a_round_does(change: dict[str, Any], decision: Decision) -> None:
    assert decide(replace(GOES, **change)) == decision


@pytest.mark.parametrize(
    ("percent", "failed", "stops"),
    [(0, 0, False), (0, 1, True), (10, 10, False), (10, 11, True), (100, 100, False)],
)
def test_more_failures_than_allowed_stop_it(percent: int, failed: int, stops: bool) -> None:
    made = decide(replace(GOES, max_failed_percent=percent, failed=failed))
    assert (made.stop is not None) == stops
    if made.stop:
        assert made.stop == (
            BatchStop.TOO_MANY_FAILED,
            f"{failed} of 100 items failed, maxFailedPercent is {percent}",
        )
        assert made.room == 0


@pytest.mark.parametrize("ended", list(FinalStatus))
def test_reader_that_ended_without_the_last_item_stops_it(ended: FinalStatus) -> None:
    at = replace(GOES, sealed=False, open=0, fed=0, reader=(ended, "it broke"))
    assert decide(at) == Decision(
        stop=(BatchStop.ITEMS_UNREADABLE, "the items could not be read: it broke"), finished=True
    )


@given(
    st.builds(
        Standing,
        parallelism=st.none() | st.integers(1, 10_000),
        max_failed_percent=st.integers(0, 100),
        materialize=st.sampled_from(Materialize),
        suspended=st.booleans(),
        sealed=st.booleans(),
        departed=st.booleans(),
        stopped=st.none() | st.sampled_from(BatchStop),
        total=st.integers(0, 200_000),
        fed=st.integers(0, 1000),
        failed=st.integers(0, 1000),
        open=st.integers(0, 12_000),
        named=st.booleans(),
        reader=st.none() | st.just((FinalStatus.FAILED, "x")),
    )
)
def test_room_never_exceeds_parallelism_and_an_end_is_an_end(at: Standing) -> None:
    made = decide(at)
    assert made.room == 0 or at.open + made.room <= (at.parallelism or WINDOW)
    assert 0 <= made.room <= max(0, at.total - at.fed)
    if made.finished:
        assert at.open == 0


@pytest.mark.parametrize(
    ("total", "level", "ok"),
    [
        (0, Materialize.NONE, False),
        (1, Materialize.NONE, True),
        (1000, Materialize.ALL, True),
        (1001, Materialize.ALL, False),
        (100_000, Materialize.FAILED, True),
    ],
)
def test_number_of_items(total: int, level: Materialize, ok: bool) -> None:
    assert (items_problem(total, level) is None) == ok


ROW = BatchStatus(
    batch_id=BatchId(17),
    uid="u",
    total=100,
    fed=40,
    succeeded=20,
    failed=7,
    cancelled=1,
    takeovers=3,
    sealed=True,
    suspended=False,
    stopped=None,
    stop_message="",
    materialize=Materialize.NONE,
    started_at=NOW,
    finished_at=None,
    max_failed_percent=100,
    running=10,
    failures=tuple((f"i-{n}", "AgentError") for n in range(7)),
)
END = NOW + timedelta(minutes=1)


def of(row: BatchStatus, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the status of a row, checked by the schema's model."""
    status = batch_status(row, generation=2, before=before or {}, now=END)
    assert AgentRunBatchStatus.model_validate(status).to_dict() == status
    return status


def words(status: dict[str, Any]) -> dict[str, str]:
    """Return each condition as `True/Reason`."""
    return {it["type"]: f"{it['status']}/{it['reason']}" for it in status["conditions"]}


@pytest.mark.parametrize(
    ("change", "phase", "finished", "succeeded"),
    [
        ({}, "Running", "False/InProgress", "Unknown/InProgress"),
        ({"started_at": None}, "Pending", "False/InProgress", "Unknown/InProgress"),
        ({"suspended": True}, "Suspended", "False/InProgress", "Unknown/InProgress"),
        ({"stopped": CANCELLED}, "Running", "False/Stopping", "False/Cancelled"),
        ({"finished_at": END}, "Succeeded", "True/Completed", "True/Completed"),
        (
            {"finished_at": END, "stopped": CANCELLED},
            "Cancelled",
            "True/Cancelled",
            "False/Cancelled",
        ),
        (
            {"finished_at": END, "stopped": BatchStop.TOO_MANY_FAILED},
            "Failed",
            "True/MaxFailedPercentReached",
            "False/MaxFailedPercentReached",
        ),
    ],
    ids=str,
)
def test_conditions_tell_how_it_goes(
    change: dict[str, Any], phase: str, finished: str, succeeded: str
) -> None:
    status = of(replace(ROW, **change))
    assert (status["phase"], words(status)["Finished"], words(status)["Succeeded"]) == (
        phase,
        finished,
        succeeded,
    )


@given(
    counts=st.tuples(*(st.integers(0, 50) for _ in range(5))),
    waiting=st.integers(0, 50),
    stopped=st.none() | st.sampled_from(BatchStop),
)
def test_counts_add_up(counts: tuple[int, ...], waiting: int, stopped: BatchStop | None) -> None:
    running, succeeded, failed, cancelled, queued = counts
    fed = sum(counts)
    row = replace(
        ROW,
        total=fed + waiting,
        fed=fed,
        running=running,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
        stopped=stopped,
    )
    status = of(row)
    names = ("queued", "running", "succeeded", "failed", "cancelled")
    assert sum(status[name] for name in names) == status["total"]
    assert status["queued"] == queued + (0 if stopped else waiting)


def test_failed_items_are_few_and_a_long_list_says_so() -> None:
    many = tuple((f"i-{n}", "AgentError") for n in range(21))
    status = of(replace(ROW, failed=21, failures=many))
    assert len(status["failedItems"]) == 20
    assert status["failedItemsTruncated"]
    assert not of(ROW)["failedItemsTruncated"]


def test_time_of_a_condition_stays_until_it_flips() -> None:
    before = of(ROW)
    later = batch_status(
        replace(ROW, succeeded=30), generation=3, before=before, now=END + timedelta(hours=1)
    )
    assert [it["lastTransitionTime"] for it in later["conditions"]] == [
        it["lastTransitionTime"] for it in before["conditions"]
    ]


def test_each_thing_is_announced_once() -> None:
    refused = refused_status(
        BatchRefused(BatchStop.INVALID_ITEMS, "line 3: is not JSON"),
        generation=1,
        before={},
        now=NOW,
    )
    assert list(events({}, refused)) == [("BatchRefused", "InvalidItems: line 3: is not JSON")]
    assert list(events(refused, refused)) == []
    going, done = of(ROW), of(replace(ROW, finished_at=END))
    assert [reason for reason, _ in events({}, going)] == ["BatchAccepted"]
    assert [reason for reason, _ in events(going, done)] == ["BatchSucceeded"]
    stopping = of(replace(ROW, stopped=BatchStop.TOO_MANY_FAILED))
    failed = of(replace(ROW, stopped=BatchStop.TOO_MANY_FAILED, finished_at=END))
    assert [reason for reason, _ in events(going, stopping)] == ["BatchStopped"]
    assert [reason for reason, _ in events(stopping, failed)] == ["BatchFailed"]


def test_a_lost_row_keeps_what_it_had_shown() -> None:
    status = refused_status(
        BatchRefused(FailureReason.ROW_MISSING, "gone"), generation=2, before=of(ROW), now=END
    )
    assert status["succeeded"] == 20
    assert words(status)["Accepted"] == "False/RowMissing"


def test_waiting_says_for_what() -> None:
    waits = BatchWaits(WaitReason.AGENT_NOT_FOUND, "Agent a does not exist")
    status = waiting_status(waits, generation=1, before={}, now=NOW)
    assert words(status)["Accepted"] == "Unknown/AgentNotFound"
    assert status["phase"] == "Pending"


@pytest.mark.parametrize(
    ("ttl", "after", "gone"), [(60, 59, False), (60, 60, True), (None, 9, False)]
)
def test_time_to_live_counts_from_the_end(ttl: int | None, after: int, gone: bool) -> None:
    status = of(replace(ROW, finished_at=END))
    spec = {"runTemplate": {}, "ttlSecondsAfterFinished": ttl}
    seen = Seen("AgentRunBatch", ObjectKey("n", "b", "u"), 1, "1", spec=spec, status=status)
    assert known_batch(seen).expired(END + timedelta(seconds=after)) == gone
    unfinished = replace(seen, status=of(ROW))
    assert not known_batch(unfinished).expired(END + timedelta(days=9))


@given(st.text(alphabet="abc-.", min_size=1, max_size=52), st.text("ab-", min_size=1, max_size=40))
def test_name_of_an_object_is_a_label_and_known_again(batch: str, item: str) -> None:
    name = object_name(f"b{batch}", f"i{item}")
    assert len(name) <= 63
    assert may_be_ours(name)
    assert name != object_name(f"b{batch}", f"i{item}")
    assert "." not in name


@pytest.mark.parametrize("name", ["run", "run-1234567", "run-1234567g", "12345678", "-12345678"])
def test_other_names_are_not_asked_about(name: str) -> None:
    assert not may_be_ours(name)


@pytest.mark.parametrize("text", ["plain", '{"a": 1}', '"quoted"', "7", "", "\n" * 60_000])
def test_input_of_an_object_means_the_same_again(text: str) -> None:
    stored = input_bytes(text)
    assert input_bytes(text_of(stored)) == stored
    assert len(text_of(stored)) <= 65_536
