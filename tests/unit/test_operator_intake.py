"""Intake's decisions: what is news, what is to be done, what may wait; and coalescing."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.states import WaitReason
from rowlock_operator.intake.echoes import EchoFilter
from rowlock_operator.intake.inbox import Coalescer
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.intake.sorting import Sort, may_have_row, sort
from rowlock_operator.intake.source import Handover
from rowlock_operator.intake.waiting import Waiting, WaitingRun
from rowlock_operator.kube.resources import ObjectKey

FINISHED = [{"type": "Finished", "status": "True"}]


def seen(uid: str = "u", generation: int = 1, **more: Any) -> Seen:
    return Seen("AgentRun", ObjectKey("ns", f"run-{uid}", uid), generation, "1", **more)


@pytest.mark.parametrize(
    ("item", "has_row", "wanted"),
    [
        (seen(), False, Sort.RESOLVE),
        (seen(gone=True), True, Sort.DEPART),
        (seen(gone=True), False, Sort.DEPART),
        (seen(), True, Sort.SHOW),
        (seen(spec={"desiredState": "Cancel"}), True, Sort.CANCEL),
        (seen(deleting=True), True, Sort.CANCEL),
        (seen(deleting=True), False, Sort.IGNORE),
        (seen(spec={"desiredState": "Cancel"}), False, Sort.REFUSE_CANCELLED),
        (seen(status={"runID": "7"}), False, Sort.LEAVE_TO_SWEEP),
        (seen(status={"conditions": FINISHED}), False, Sort.SHOW_REFUSAL),
        (seen(status={"conditions": FINISHED, "runID": "7"}), False, Sort.SHOW_REFUSAL),
        (seen(status={"phase": "Queued"}), False, Sort.RESOLVE),
    ],
)
def test_what_is_to_be_done(item: Seen, has_row: bool, wanted: Sort) -> None:
    assert sort(item, has_row=has_row) is wanted


@pytest.mark.parametrize(
    ("item", "wanted"),
    [
        (seen(), False),
        (seen(generation=2), True),
        (seen(status={"phase": "Queued"}), True),
        (seen(gone=True), True),
        (seen(deleting=True), True),
    ],
)
def test_only_a_fresh_object_surely_has_no_row(item: Seen, wanted: bool) -> None:
    assert may_have_row(item) is wanted


@pytest.mark.parametrize(
    ("item", "settled"),
    [
        (seen(), False),
        (seen(status={"observedGeneration": 1, "runID": "7"}), True),
        (seen(generation=2, status={"observedGeneration": 1, "runID": "7"}), False),
        (seen(status={"observedGeneration": 1, "phase": "Queued"}), False),
        (seen(status={"observedGeneration": 1, "conditions": FINISHED}), True),
        (
            seen(spec={"desiredState": "Cancel"}, status={"observedGeneration": 1, "runID": "7"}),
            False,
        ),
        (seen(deleting=True, status={"observedGeneration": 1, "runID": "7"}), False),
    ],
)
def test_a_settled_object_needs_nothing(item: Seen, settled: bool) -> None:
    assert item.settled is settled
    assert EchoFilter().passes(item) is not settled


def test_echoes_are_dropped_and_news_are_not() -> None:
    echoes = EchoFilter()
    assert echoes.passes(seen())
    assert not echoes.passes(seen())
    assert not echoes.passes(seen(status={"phase": "Queued"}))
    assert echoes.passes(seen(generation=2))
    assert not echoes.passes(seen(generation=1))
    assert echoes.passes(seen(gone=True))
    assert echoes.passes(seen("other"))


def test_a_forgotten_object_passes_once_more() -> None:
    echoes = EchoFilter(known=2)
    for uid in ("a", "b", "c"):
        assert echoes.passes(seen(uid))
    assert echoes.passes(seen("a"))
    assert not echoes.passes(seen("c"))


def test_an_object_is_read_from_json() -> None:
    item = {
        "metadata": {
            "name": "r",
            "namespace": "ns",
            "uid": "u",
            "generation": 3,
            "resourceVersion": "9",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"desiredState": "Run"},
    }
    found = seen_from(item, "AgentRun")
    assert (str(found.key), found.generation, found.version) == ("ns/r", 3, "9")
    assert found.deleting
    assert found.status == {}


objects = st.builds(
    lambda uid, generation, gone: replace(seen(uid, generation), gone=gone),
    st.sampled_from("abcd"),
    st.integers(1, 5),
    st.booleans(),
)
steps = st.lists(st.one_of(objects, st.just("take"), st.just("fail")), max_size=60)


@given(steps)
def test_coalescing_keeps_the_newest_of_each_object_and_loses_none(
    moves: list[Seen | str],
) -> None:
    inbox = Coalescer()
    newest: dict[str, tuple[bool, int]] = {}
    for move in moves:
        if isinstance(move, Seen):
            inbox.put(move)
            known = newest.get(move.key.uid, (False, 0))
            gone = known[0] or move.gone
            newest[move.key.uid] = (gone, max(known[1], move.generation))
            continue
        batch = inbox.take(2)
        assert len({item.key.uid for item in batch}) == len(batch) <= 2
        if move == "fail":
            inbox.put_back(batch)
            continue
        for item in batch:
            gone, generation = newest.pop(item.key.uid)
            assert item.gone is gone
            assert gone or item.generation == generation
    assert {item.key.uid for item in inbox.take(100)} == set(newest)
    assert len(inbox) == 0


def test_what_was_put_back_comes_first_unless_it_is_old() -> None:
    inbox = Coalescer()
    for uid in ("a", "b"):
        inbox.put(seen(uid))
    batch = inbox.take(2)
    inbox.put(seen("c"))
    inbox.put(seen("a", 2))
    inbox.put_back(batch)
    assert [(it.key.uid, it.generation) for it in inbox.take(9)] == [("a", 2), ("b", 1), ("c", 1)]


def waiting_run(uid: str, reason: WaitReason = WaitReason.POOL_NOT_FOUND) -> WaitingRun:
    return WaitingRun(ObjectKey("ns", "r", uid), reason, agent="support", pool="default")


def test_waiting_runs_are_found_by_what_they_wait_for() -> None:
    waiting = Waiting()
    waiting.add(waiting_run("a"))
    assert waiting.may_wait("Agent", "ns", "support")
    assert waiting.may_wait("WorkerPool", "ns", "default")
    assert not waiting.may_wait("Agent", "other", "support")
    assert not waiting.may_wait("Agent", "ns", "default")
    waiting.add(waiting_run("b", WaitReason.INPUT_NOT_FOUND))
    assert [key.uid for key in waiting.for_inputs()] == ["b"]
    waiting.discard("a")
    waiting.discard("b")
    assert not waiting.may_wait("Agent", "ns", "support")


def test_too_many_waiting_runs_are_answered_with_perhaps() -> None:
    waiting = Waiting(most=1)
    waiting.add(waiting_run("a"))
    waiting.add(waiting_run("b"))
    assert len(waiting) == 1
    assert waiting.may_wait("Agent", "elsewhere", "any")


async def test_objects_cross_threads_in_order_and_none_is_lost() -> None:
    handover = Handover()
    taken: list[Seen] = []
    count = 2000

    def deliver() -> None:
        for number in range(count):
            handover.put(seen("u", number))

    thread = threading.Thread(target=deliver)
    thread.start()
    async with asyncio.timeout(30):
        while len(taken) < count:
            await handover.wait()
            taken += handover.take()
    thread.join()
    assert [item.generation for item in taken] == list(range(count))
    assert not await handover.wait(timeout=0.001)
