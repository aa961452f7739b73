"""Who leads: the decisions alone, and the shell around them with a Lease in memory."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock_operator import metrics as m
from rowlock_operator.kube.client import Lane
from rowlock_operator.kube.errors import Conflict, KubeError, NotFound, Unreachable
from rowlock_operator.lifecycle.election import Sighting, Take, Term, Wait, decide, see
from rowlock_operator.lifecycle.elector import Elector, LeadershipLost
from rowlock_operator.lifecycle.lease import AILING, Lease, held, lease_from, new_object, released
from rowlock_operator.lifecycle.lease_access import LeaseAccess, LeaseMisplaced, Place

TERM = Term()
PLACE = Place("system", "rowlock-operator")


def lease(holder: str = "other", renewed: str = "1", **more: Any) -> Lease:
    given = {"holder": holder, "seconds": 15.0, "renewed": renewed, "transitions": 1}
    return Lease(**(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "now", "fit", "what"),
    [
        (Sighting(None, 0), 0, True, Take("there was no Lease")),
        (Sighting(lease(""), 0), 0, True, Take("it was released")),
        (Sighting(lease(""), 0), 0, False, Wait(1.6)),
        (Sighting(lease(), 0), 1, True, Wait(1.6)),
        (Sighting(lease(), 0), 14.5, True, Wait(0.5)),
        (Sighting(lease(), 0), 15, True, Take("other gave no sign of life for 15.0 s")),
        (Sighting(lease(), 0), 15, False, Wait(1.6)),
        # What the holder asked for counts, if it is more than what we would.
        (Sighting(lease(seconds=60.0), 0), 15, True, Wait(1.6)),
        (Sighting(lease(seconds=60.0), 0), 60, True, Take("other gave no sign of life for 60.0 s")),
        (Sighting(lease(seconds=1.0), 0), 5, True, Wait(1.6)),
        (Sighting(lease(), 40, ailing_since=20), 41, True, Wait(1.6)),
        (
            Sighting(lease(), 49, ailing_since=20),
            50,
            True,
            Take("other has been without PostgreSQL for 30 s"),
        ),
    ],
)
def test_a_standby_takes_only_what_is_free(
    seen: Sighting, now: float, fit: bool, what: Take | Wait
) -> None:
    assert decide("me", seen, now=now, term=TERM, fit=fit) == what


def test_an_attempt_whose_answer_was_lost_is_made_good() -> None:
    assert isinstance(decide("me", Sighting(lease("me"), 0), now=1, term=TERM), Take)


@pytest.mark.parametrize(
    ("before", "after", "since"),
    [
        (lease(renewed="1"), lease(renewed="2"), 9),
        (lease(renewed="2"), lease(renewed="1"), 9),
        (lease("other"), lease("third"), 9),
        (lease(transitions=1), lease(transitions=2), 9),
        (lease(), lease(), 5),
        # Somebody who labels the Lease over and over does not keep a dead leader alive.
        (lease(raw={"metadata": {"resourceVersion": "1"}}), lease(raw={}), 5),
        (None, lease(), 9),
    ],
)
def test_any_change_of_the_holders_own_words_is_a_sign_of_life(
    before: Lease | None, after: Lease, since: float
) -> None:
    assert see(see(None, before, at=5), after, at=9).since == since


def test_a_leader_without_postgresql_counts_as_ailing_only_while_we_have_it() -> None:
    ill = lease(ailing=True)
    seen = see(None, ill, at=1)
    assert seen.ailing_since == 1
    assert see(seen, lease(ailing=True, renewed="2"), at=5).ailing_since == 1
    assert see(seen, ill, at=5, fit=False).ailing_since is None
    assert see(see(seen, ill, at=5, fit=False), ill, at=6).ailing_since == 6
    assert see(seen, lease(), at=5).ailing_since is None
    assert see(seen, lease("third", ailing=True), at=5).ailing_since == 5


TIMES = st.floats(min_value=0, max_value=40)
TERMS = st.builds(
    lambda lease, share, retry: Term(lease, lease * share, lease * share * retry),
    st.floats(min_value=1, max_value=60),
    st.floats(min_value=0.1, max_value=0.95),
    st.floats(min_value=0.05, max_value=0.5),
)


@given(term=TERMS, slow=TIMES, answer=TIMES, wait=TIMES)
def test_nobody_takes_a_lease_that_its_holder_still_trusts(
    term: Term, slow: float, answer: float, wait: float
) -> None:
    """However long requests and answers take: the leader has stopped before another begins.

    It began to renew at 0; that was carried out after `slow` seconds and seen `answer` later.
    """
    before = see(None, lease(renewed="1"), at=-1)
    seen = see(before, lease(renewed="2", seconds=term.lease), at=slow + answer)
    now = slow + answer + wait
    if isinstance(decide("me", seen, now=now, term=term), Take):
        assert now > term.renew


@given(term=TERMS, lag=TIMES)
def test_a_standby_that_follows_its_waits_takes_a_dead_lease_in_time(
    term: Term, lag: float
) -> None:
    """It is ours at the latest one look and one lease after the holder's last sign of life."""
    lag = min(lag, term.look)
    seen, now = see(None, lease(seconds=term.lease), at=lag), lag
    while isinstance(step := decide("me", seen, now=now, term=term), Wait):
        assert step.seconds > 0
        now += step.seconds
    assert now <= term.look + term.lease + 0.01


def test_a_default_leader_is_replaced_within_17_seconds_and_a_released_lease_within_2() -> None:
    assert TERM.look + TERM.lease <= 17
    assert TERM.look < 2


class Server:
    """One Lease on an API server in memory, and the clock that all of them share."""

    def __init__(self) -> None:
        self.item: dict[str, Any] | None = None
        self.version = 0
        self.now = 0.0
        self.fault: Callable[[str, str], KubeError | None] = lambda _verb, _who: None
        self.lose_answers: set[str] = set()

    def write(self, verb: str, who: str, body: dict[str, Any]) -> dict[str, Any]:
        if error := self.fault(verb, who):
            raise error
        self.version += 1
        self.item = copy.deepcopy(body)
        self.item["metadata"]["resourceVersion"] = str(self.version)
        if who in self.lose_answers:
            raise Unreachable("lost")
        return copy.deepcopy(self.item)

    def holder(self) -> str:
        return lease_from(self.item or {}).holder


class Client:
    """Speaks to the server above, as one candidate."""

    def __init__(self, server: Server, who: str) -> None:
        self.server, self.who = server, who

    async def get(self, _path: str, *, lane: Lane) -> Any:
        assert lane is Lane.LEASE
        if error := self.server.fault("get", self.who):
            raise error
        if self.server.item is None:
            raise NotFound("none")
        return copy.deepcopy(self.server.item)

    async def create(self, _path: str, body: Any, *, lane: Lane) -> Any:
        assert lane is Lane.LEASE
        if self.server.item is not None:
            raise Conflict("exists")
        return self.server.write("create", self.who, body)

    async def replace(self, _path: str, body: Any, *, lane: Lane) -> Any:
        assert lane is Lane.LEASE
        if self.server.item is None:
            raise NotFound("none")
        if body["metadata"]["resourceVersion"] != str(self.server.version):
            raise Conflict("newer")
        return self.server.write("replace", self.who, body)


class Turns:
    """A clock on which sleepers wake in the order of their times; `frozen` ones do not."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sleepers: list[tuple[float, str, asyncio.Event]] = []
        self.frozen: set[str] = set()

    def of(self, who: str) -> Any:
        turns = self

        class Clock:
            def monotonic(self) -> float:
                return turns._server.now

            async def sleep(self, seconds: float) -> None:
                woken = asyncio.Event()
                turns._sleepers.append((turns._server.now + seconds, who, woken))
                await woken.wait()

        return Clock()

    async def run(self, until: float) -> None:
        """Let time pass."""
        while True:
            await settle()
            ready = [it for it in self._sleepers if it[1] not in self.frozen]
            first = min(ready, key=lambda it: it[0], default=None)
            if first is None or first[0] > until:
                break
            self._sleepers.remove(first)
            self._server.now = max(self._server.now, first[0])
            first[2].set()
        self._server.now = until


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Candidate:
    """An elector with its tasks."""

    def __init__(self, server: Server, turns: Turns, who: str) -> None:
        self.fit = True
        self.metrics = m.Metrics()
        self.elector = Elector(
            LeaseAccess(Client(server, who), PLACE),  # type: ignore[arg-type]
            term=TERM,
            fit=lambda: self.fit,
            metrics=self.metrics,
            identity=who,
            clock=turns.of(who),
        )
        self.task = asyncio.create_task(self._run())
        self.why = ""

    async def _run(self) -> None:
        try:
            await self.elector.win()
            await self.elector.hold()
        except (LeadershipLost, LeaseMisplaced) as error:
            self.why = str(error)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})
        await self.elector.release()


async def two() -> tuple[Server, Turns, Candidate, Candidate]:
    server = Server()
    turns = Turns(server)
    first = Candidate(server, turns, "first")
    await turns.run(5)
    second = Candidate(server, turns, "second")
    await turns.run(30)
    assert (first.elector.leads, second.elector.leads) == (True, False)
    return server, turns, first, second


async def test_one_leads_and_the_other_waits() -> None:
    server, turns, first, second = await two()
    await turns.run(1000)
    assert server.holder() == "first"
    assert first.elector.in_touch
    assert second.elector.in_touch
    assert first.metrics.value(m.LEADER) == 1
    assert second.metrics.value(m.LEADER) == 0
    assert second.metrics.value(m.LEADER_CHANGES) == 1


async def test_a_dead_leader_is_replaced_within_17_seconds() -> None:
    server, turns, first, second = await two()
    first.task.cancel()
    await turns.run(30 + 12)
    assert not second.elector.leads
    await turns.run(30 + 17)
    assert server.holder() == "second"
    assert second.metrics.value(m.LEADER_CHANGES) == 2


async def test_a_released_lease_is_taken_within_2_seconds() -> None:
    server, turns, first, _second = await two()
    await first.stop()
    assert server.holder() == ""
    await turns.run(32)
    assert server.holder() == "second"


async def test_a_leader_that_cannot_renew_ends_before_anybody_else_leads() -> None:
    server, turns, first, second = await two()
    server.fault = lambda _verb, who: Unreachable("cut") if who == "first" else None
    await turns.run(30 + 10)
    assert first.why == "the Lease system/rowlock-operator was not renewed in 10 s"
    assert first.elector.lost
    assert not second.elector.leads
    await turns.run(30 + 17)
    assert second.elector.leads


async def test_a_short_outage_costs_no_leader() -> None:
    server, turns, first, _second = await two()
    server.fault = lambda _verb, _who: Unreachable("away")
    await turns.run(36)
    server.fault = lambda _verb, _who: None
    await turns.run(100)
    assert (first.why, server.holder()) == ("", "first")


async def test_a_frozen_leader_that_wakes_up_ends_at_once() -> None:
    server, turns, first, second = await two()
    turns.frozen.add("first")
    await turns.run(60)
    assert second.elector.leads
    assert first.elector.leads  # it knows of nothing yet
    assert not first.elector.in_touch
    turns.frozen.clear()
    await turns.run(60)
    assert first.elector.lost
    assert server.holder() == "second"


async def test_a_leader_that_finds_another_holder_ends() -> None:
    server, turns, first, _second = await two()
    assert server.item is not None
    server.write("replace", "x", {**server.item, "spec": {"holderIdentity": "thief"}})
    await turns.run(33)
    assert first.why == "thief has the Lease system/rowlock-operator now"


async def test_what_others_write_beside_the_holder_costs_nothing() -> None:
    server, turns, first, second = await two()
    for at in range(31, 60):
        assert server.item is not None
        server.item["metadata"]["labels"] = {"seen": str(at)}
        server.write("replace", "x", server.item)
        await turns.run(at)
    assert (first.elector.leads, second.elector.leads) == (True, False)
    await turns.run(70)
    assert server.item["metadata"]["labels"] == {"seen": "59"}


async def test_a_lost_answer_costs_no_leader_and_a_deleted_lease_is_made_anew() -> None:
    server, turns, first, second = await two()
    server.lose_answers = {"first"}
    await turns.run(33)
    server.lose_answers = set()
    await turns.run(50)
    server.item = None
    await turns.run(80)
    # Whoever was faster: one leads, and the other one knows.
    assert [first.elector.leads, second.elector.leads].count(True) == 1
    assert server.holder() == ("first" if first.elector.leads else "second")


async def test_a_leader_without_postgresql_yields_to_one_that_has_it() -> None:
    server, turns, first, second = await two()
    first.fit = second.fit = False
    await turns.run(200)
    assert first.elector.leads  # nobody could do better
    assert server.item is not None
    assert AILING in server.item["metadata"]["annotations"]
    second.fit = True
    await turns.run(225)
    assert first.elector.leads
    await turns.run(240)
    assert (first.elector.lost, second.elector.leads) == (True, True)
    assert AILING not in server.item["metadata"]["annotations"]


async def test_a_namespace_that_is_not_there_is_a_wrong_setting() -> None:
    server = Server()
    server.fault = lambda verb, _who: NotFound("namespace") if verb == "create" else None
    turns = Turns(server)
    lost = Candidate(server, turns, "one")
    await turns.run(1)
    assert "ROWLOCK_LEASE_NAMESPACE" in lost.why


async def test_a_standby_that_cannot_write_the_lease_is_not_in_touch() -> None:
    server, turns, first, second = await two()
    await first.stop()
    server.fault = lambda verb, _who: Unreachable("no") if verb == "replace" else None
    await turns.run(50)
    assert not second.elector.leads
    assert not second.elector.in_touch


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_two_never_trust_the_lease_at_once(seed: int) -> None:
    chance = random.Random(seed)
    server = Server()
    turns = Turns(server)
    people = [Candidate(server, turns, f"p{number}") for number in range(3)]
    for step in range(1, 60):
        down = {who for who in ("p0", "p1", "p2") if chance.random() < 0.3}
        server.fault = lambda _verb, who, down=down: Unreachable("x") if who in down else None
        server.lose_answers = {who for who in ("p0", "p1", "p2") if chance.random() < 0.2}
        turns.frozen = {who for who in ("p0", "p1", "p2") if chance.random() < 0.2}
        await turns.run(step * 4.0)
        trusting = [it for it in people if it.elector.leads and it.elector.in_touch]
        assert len(trusting) <= 1
        people = [it if not it.why else replaced(server, turns, step) for it in people]
    server.fault, server.lose_answers = lambda _verb, _who: None, set()
    turns.frozen = set()
    await turns.run(500)
    assert [it.elector.leads for it in people].count(True) == 1


def replaced(server: Server, turns: Turns, step: int) -> Candidate:
    return Candidate(server, turns, f"p{step % 3}-{step}")


def test_the_object_keeps_what_others_put_there_and_counts_changes_of_the_leader() -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    fresh = lease_from(new_object("ns", "it"))
    made = held(fresh, by="me", seconds=1.5, now=now, ailing=False)
    assert made["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 2,
        "renewTime": "2026-01-02T03:04:05.678901Z",
        "acquireTime": "2026-01-02T03:04:05.678901Z",
        "leaseTransitions": 1,
    }
    made["metadata"]["labels"] = {"app": "x"}
    again = held(lease_from(made), by="me", seconds=15, now=now, ailing=True)
    assert again["spec"]["leaseTransitions"] == 1
    assert again["metadata"]["labels"] == {"app": "x"}
    assert lease_from(again).ailing
    free = released(lease_from(again), now=now)
    assert (lease_from(free).holder, lease_from(free).ailing) == ("", False)
    assert free["spec"]["leaseTransitions"] == 1
