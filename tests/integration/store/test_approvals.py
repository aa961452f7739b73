"""A question stands once, its first answer holds, and only for what was asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from rowlock.states import Decision, FenceReason
from rowlock.store import approvals, changes, intake, parking, questions, redrive, work, workers
from rowlock.store.types import Claimed, Deciding, RunId, Verdict, WorkerId
from tests.integration.store.test_parking import QUESTION, asking, park, parked
from tests.integration.store.test_races import account, race
from tests.integration.store.world import CLUSTER, World, failure


async def asked(world: World, **fields: Any) -> tuple[WorkerId, Claimed]:
    """Return a run that has asked its question and waits."""
    worker, [run] = await world.running(**fields)
    assert await park(world, worker, asking(run)) is Verdict.DONE
    return worker, run


async def decide(
    world: World, run: RunId, decision: Decision = Decision.APPROVED, **fields: Any
) -> Any:
    given = {"step_key": QUESTION.step_key, "digest": QUESTION.digest, "attempt": 1, "by": "ada"}
    conn = fields.pop("conn", world.store)
    return await approvals.decide(conn, run, decision=decision, **(given | fields))


async def test_question_is_shown_until_it_is_answered(world: World) -> None:
    _, run = await asked(world, linked=True)
    [pending] = await approvals.pending_approvals(world.store)
    assert (pending.run_id, pending.step_key, pending.digest, pending.attempt) == (
        run.run_id,
        QUESTION.step_key,
        QUESTION.digest,
        1,
    )
    assert (pending.tool, pending.question, pending.expires_at) == (
        "refund",
        QUESTION.question,
        None,
    )
    assert await approvals.pending_approvals(world.store, RunId(1)) == []
    decided = await decide(world, run.run_id, Decision.DENIED, reason="too much")
    assert decided.outcome is Deciding.DECIDED
    assert await approvals.pending_approvals(world.store) == []
    assert await world.place(run.run_id) == "ready"
    assert await world.changes(run.run_id) == [1, 2, 10, 8]
    [answer] = await approvals.answers(world.store, run.run_id)
    assert (answer.decision, answer.by, answer.reason) == (Decision.DENIED, "ada", "too much")
    await world.sound()


async def test_first_answer_stands_and_the_same_one_may_be_repeated(world: World) -> None:
    _, run = await asked(world)
    assert (await decide(world, run.run_id)).outcome is Deciding.DECIDED
    assert (await decide(world, run.run_id)).outcome is Deciding.ALREADY_DECIDED
    late = await decide(world, run.run_id, Decision.DENIED, by="bob")
    assert late.outcome is Deciding.TAKEN
    assert (late.answer.decision, late.answer.by) == (Decision.APPROVED, "ada")


async def test_answer_to_other_arguments_or_to_nothing_changes_nothing(world: World) -> None:
    _, run = await asked(world)
    other = await decide(world, run.run_id, digest="other")
    assert other.outcome is Deciding.OTHER_DIGEST
    assert (await decide(world, run.run_id, step_key="x")).outcome is Deciding.UNKNOWN
    assert (await decide(world, RunId(1))).outcome is Deciding.UNKNOWN
    assert await world.place(run.run_id) == "parked"
    assert len(await approvals.pending_approvals(world.store)) == 1


async def test_answer_to_a_run_that_has_ended_is_refused(world: World) -> None:
    _, run = await asked(world)
    await intake.request_cancel(world.store, [run.run_id], by="ada")
    assert (await decide(world, run.run_id)).outcome is Deciding.OVER


async def test_question_stands_once_over_crashes(world: World) -> None:
    """Its worker dies right after asking; the run is woken by something else and asks again."""
    worker, run = await asked(world)
    [first] = await approvals.pending_approvals(world.store)
    await workers.fence(world.store, [worker], reason=FenceReason.WORKER_DIED)
    assert await world.place(run.run_id) == "parked"
    await world.sql("UPDATE rowlock.run_parked SET wake_at = rowlock.now()")
    await parking.wake_parked(world.store)
    heir = await world.worker()
    [again] = await world.claim(heir)
    await world.later(5)
    assert await park(world, heir, asking(again, seq=2)) is Verdict.DONE
    assert await approvals.pending_approvals(world.store) == [first]
    await world.sound()


async def test_run_that_parks_with_an_answer_goes_on_at_once(world: World) -> None:
    worker, run = await asked(world)
    await world.sql("UPDATE rowlock.run_parked SET wake_at = rowlock.now()")
    await parking.wake_parked(world.store)
    [again] = await world.claim(worker)
    await decide(world, run.run_id)
    assert await world.place(run.run_id) == "lease"
    await park(world, worker, asking(again, seq=2))
    assert await world.place(run.run_id) == "ready"
    await world.sound()


async def test_any_answer_of_several_wakes_the_run(world: World) -> None:
    worker, [run] = await world.running()
    other = replace(QUESTION, step_key="refund:1.1", digest="second")
    row = parked(run, reasons=("approval",), wake_in=None, questions=(QUESTION, other))
    await park(world, worker, row)
    assert len(await approvals.pending_approvals(world.store, run.run_id)) == 2
    await decide(world, run.run_id, step_key=other.step_key, digest=other.digest)
    [again] = await world.claim(worker)
    await park(world, worker, asking(again, seq=2))
    assert await world.place(run.run_id) == "parked"
    await decide(world, run.run_id)
    assert await world.place(run.run_id) == "ready"
    await world.sound()


async def test_question_expires_by_the_clock_of_the_database(world: World) -> None:
    worker, [run] = await world.running()
    short = replace(QUESTION, expires_in_seconds=30.0)
    await park(world, worker, asking(run, question=short))
    assert await approvals.expire_approvals(world.store) == []
    await world.later(31)
    assert (await decide(world, run.run_id)).outcome is Deciding.EXPIRED
    assert await approvals.pending_approvals(world.store) == []
    assert await approvals.expire_approvals(world.store) == [run.run_id]
    assert await world.place(run.run_id) == "ready"
    [answer] = await approvals.answers(world.store, run.run_id)
    assert (answer.decision, answer.by) == (Decision.EXPIRED, "expiry")
    assert (await decide(world, run.run_id)).outcome is Deciding.EXPIRED
    assert await approvals.expire_approvals(world.store) == []
    await world.sound()


async def test_answer_belongs_to_its_attempt(world: World) -> None:
    worker, run = await asked(world)
    await decide(world, run.run_id, Decision.DENIED)
    [again] = await world.claim(worker)
    await work.finish(world.store, worker=worker, events=[], finals=[failure(again)])
    await redrive.redrive(world.store, run.run_id, by="ada")
    [third] = await world.claim(worker)
    assert third.attempt == 2
    await park(world, worker, asking(third, seq=2))
    [pending] = await approvals.pending_approvals(world.store)
    assert pending.attempt == 2
    assert (await decide(world, run.run_id, attempt=2)).outcome is Deciding.DECIDED
    assert [a.attempt for a in await approvals.answers(world.store, run.run_id)] == [1, 2]
    await world.sound()


async def test_of_two_deciders_one_wins(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    seen: Counter[str] = Counter()
    for _ in range(150):
        _, run = await asked(world)
        answers = await race(
            (one, decide(world, run.run_id, conn=one)),
            (two, decide(world, run.run_id, Decision.DENIED, by="bob", conn=two)),
        )
        outcomes = [answer.outcome for answer in answers]
        assert sorted(outcome.value for outcome in outcomes) == ["decided", "taken"]
        assert len({answer.answer for answer in answers}) == 1
        assert await world.place(run.run_id) == "ready"
        seen[answers[0].answer.by] += 1
        await intake.request_cancel(world.store, [run.run_id], by="test")
    assert len(seen) == 2, seen
    assert await account(world, 150) == {"final": 150}


async def test_of_an_answer_and_the_expiry_one_wins(world: World) -> None:
    one, two = await world.connect(), await world.connect()
    for _ in range(150):
        worker, [run] = await world.running()
        await park(world, worker, asking(run))
        # The one has a clock that is late enough to answer still, the other's is past the end.
        await world.sql("UPDATE rowlock.approval SET expires_at = rowlock.now() + '1 hour'")
        await two.fetch("schema_version")
        await two._raw.execute("SET rowlock.clock_offset = '2 hours'")  # type: ignore[union-attr]
        decided, expired = await race(
            (one, decide(world, run.run_id, conn=one)), (two, approvals.expire_approvals(two))
        )
        assert (decided.outcome is Deciding.DECIDED) == (expired == [])
        assert await world.place(run.run_id) == "ready"
        await intake.request_cancel(world.store, [run.run_id], by="test")
    assert await account(world, 150) == {"final": 150}


async def object_of(world: World, run: RunId) -> str:
    """Return the uid of a run's custom resource."""
    return str(await world.value("SELECT uid FROM rowlock.run_object WHERE run_id = $1", run))


async def the_question(world: World, run: RunId) -> questions.Question:
    """Return the only question of a run as an operator reads it."""
    uid = await object_of(world, run)
    found = await questions.questions_of(world.store, cluster=CLUSTER, uids=[uid, "unknown"])
    [[question]] = found.values()
    assert question.uid == uid
    return question


async def test_an_operator_reads_how_a_question_stands(world: World) -> None:
    _, run = await asked(world, linked=True)
    stands = await the_question(world, run.run_id)
    assert (stands.step_key, stands.digest, stands.tool) == (
        QUESTION.step_key,
        QUESTION.digest,
        "refund",
    )
    assert (stands.open, stands.decision, stands.by, stands.reason) == (True, None, "", "")
    assert (stands.live_attempt, stands.newer) == (1, False)
    await decide(world, run.run_id, Decision.DENIED, reason="too much")
    answered = await the_question(world, run.run_id)
    assert (answered.open, answered.decision) == (False, Decision.DENIED)
    assert (answered.by, answered.reason) == ("ada", "too much")
    assert answered.decided_at is not None


async def test_an_operator_sees_that_a_question_is_withdrawn(world: World) -> None:
    _, run = await asked(world, linked=True)
    await intake.request_cancel(world.store, [run.run_id], by="ada")
    over = await the_question(world, run.run_id)
    assert (over.open, over.live_attempt) == (False, None)
    await redrive.redrive(world.store, run.run_id, by="ada")
    again = await the_question(world, run.run_id)
    assert (again.open, again.attempt, again.live_attempt) == (False, 1, 2)


async def test_a_newer_question_about_the_same_step_closes_the_older(world: World) -> None:
    worker, run = await asked(world, linked=True)
    await world.sql("UPDATE rowlock.run_parked SET wake_at = rowlock.now()")
    assert await parking.wake_parked(world.store, 10) == 1
    [again] = await world.claim(worker)
    other = replace(QUESTION, digest="another")
    await park(world, worker, asking(again, seq=2, question=other))
    uid = await object_of(world, run.run_id)
    found = await questions.questions_of(world.store, cluster=CLUSTER, uids=[uid])
    assert [(one.digest, one.open, one.newer) for one in found[uid]] == [
        (QUESTION.digest, False, True),
        ("another", True, False),
    ]


async def test_runs_that_ask_are_found_by_cluster_and_namespace(world: World) -> None:
    first = (await asked(world, linked=True))[1].run_id
    worker, [second] = await world.running(linked=True)
    await park(world, worker, asking(second))
    _, [quiet] = await world.running(linked=True)
    both = sorted([await object_of(world, first), await object_of(world, second.run_id)])

    async def found(cluster: str = CLUSTER, **more: Any) -> list[str]:
        return await questions.asking(world.store, cluster=cluster, **({"namespaces": None} | more))

    assert await found() == both
    assert await found(limit=1) == both[:1]
    assert await found(after_uid=both[0]) == both[1:]
    assert await found("c2") == await found(namespaces=["elsewhere"]) == []
    await decide(world, first)
    assert await object_of(world, first) not in await found()
    assert await object_of(world, quiet.run_id) not in await found()


async def test_a_snapshot_brings_the_open_questions(world: World) -> None:
    _, run = await asked(world, linked=True)
    [shown] = (await changes.snapshots(world.store, [run.run_id])).values()
    [one] = shown.questions
    assert (one.step_key, one.digest, one.tool) == (QUESTION.step_key, QUESTION.digest, "refund")
    await decide(world, run.run_id)
    [shown] = (await changes.snapshots(world.store, [run.run_id])).values()
    assert shown.questions == ()


async def test_an_answer_to_a_suspended_run_is_shown(world: World) -> None:
    _, run = await asked(world, linked=True)
    await parking.request_suspend(world.store, [run.run_id], by="ada")
    shown = [change.seq for change in await changes.unshown(world.store, limit=10)]
    await changes.shown(world.store, shown)
    assert (await decide(world, run.run_id)).outcome is Deciding.DECIDED
    assert await world.place(run.run_id) == "parked"
    assert await world.changes(run.run_id) == [10]
    await world.sound()
