"""Loops, probes, the supervisor, the start: what ends the process and what does not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock.errors import ConfigurationError, DatabaseRefused, StoreUnavailable
from rowlock_operator import metrics as m
from rowlock_operator import reference
from rowlock_operator.intake.source import SourceHealth
from rowlock_operator.kube.client import Lane
from rowlock_operator.kube.errors import Conflict, Rejected, Unreachable
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.lifecycle.health import Health, Role
from rowlock_operator.lifecycle.loops import Loop, LoopRunner, backoff
from rowlock_operator.lifecycle.probes import Vitals, liveness, readiness
from rowlock_operator.lifecycle.startup import StartFailed, patiently, too_old
from rowlock_operator.lifecycle.supervisor import PartEnded, Supervisor
from rowlock_operator.mirror.announcements import Announcement
from rowlock_operator.mirror.announcer import Announcer
from rowlock_operator.settings import load_settings

GOOD = SourceHealth(watchers=3, expected=3, beat_age=0.5, event_at=100.0)


class FakeClock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def vitals(**more: Any) -> Vitals:
    given = {"now": 1000.0, "source": GOOD, "alive_at": 1000.0, "ticked_at": 999.0}
    return Vitals(**(given | more))  # type: ignore[arg-type]


def source(**more: Any) -> SourceHealth:
    given = {"watchers": 3, "expected": 3, "beat_age": 0.5, "event_at": 100.0}
    return SourceHealth(**(given | more))


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (vitals(), "ok"),
        (vitals(source=source(ended="kopf ended: boom")), "kopf ended: boom"),
        (vitals(ticked_at=900.0), "the event loop is stuck"),
        (vitals(source=source(watchers=2), alive_at=990.0), "ok"),
        (vitals(source=source(watchers=2), alive_at=900.0), "2 of 3 watches are open"),
        (vitals(source=source(beat_age=30.0), alive_at=900.0), "3 of 3 watches are open"),
        (vitals(shown_at=990.0), "statuses are written, but the watch reports nothing"),
        (vitals(shown_at=990.0, source=source(event_at=980.0)), "ok"),
        (vitals(shown_at=130.0), "ok"),
        (vitals(shown_at=990.0, source=source(event_at=None), alive_at=985.0), "ok"),
    ],
)
def test_liveness_proves_that_the_watch_is_alive(state: Vitals, why: str) -> None:
    said = liveness(state)
    assert (said.ok, said.why) == (why == "ok", why)


@pytest.mark.parametrize(
    ("role", "database_up", "in_touch", "stopping", "ok", "why"),
    [
        (Role.LEADING, True, True, False, True, "ok"),
        (Role.STANDBY, True, True, False, True, "standby"),
        (Role.STARTING, True, True, False, False, "starting"),
        (Role.LEADING, False, True, False, False, "PostgreSQL does not answer"),
        (Role.STANDBY, False, True, False, False, "PostgreSQL does not answer"),
        (Role.LEADING, True, False, False, False, "the Lease cannot be read or renewed"),
        (Role.STANDBY, True, False, False, False, "the Lease cannot be read or renewed"),
        (Role.LEADING, True, True, True, False, "stopping"),
    ],
)
def test_readiness(
    role: Role, database_up: bool, in_touch: bool, stopping: bool, ok: bool, why: str
) -> None:
    said = readiness(role=role, database_up=database_up, in_touch=in_touch, stopping=stopping)
    assert (said.ok, said.why) == (ok, why)


class Scripted:
    """A round that fails or reports as scripted, and then blocks."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.reports: list[Any] = []
        self.done = asyncio.Event()

    async def once(self) -> Any:
        if not self.script:
            self.done.set()
            await asyncio.Event().wait()
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step

    async def pause(self, report: Any) -> None:
        self.reports.append(report)


async def test_a_loop_outlives_our_errors_and_waits_longer_each_time() -> None:
    clock, metrics, health = FakeClock(), m.Metrics(), Health()
    health.database_up = True
    work = Scripted(
        "one", StoreUnavailable(), Unreachable("away"), Rejected("no"), "two", StoreUnavailable()
    )
    running = asyncio.create_task(
        LoopRunner(metrics, health, clock=clock).run(Loop("x", work.once, work.pause))
    )
    await work.done.wait()
    running.cancel()
    assert work.reports == ["one", "two"]
    assert clock.slept[0] < clock.slept[1] < clock.slept[2]
    assert clock.slept[3] < 0.3
    assert not health.database_up
    assert metrics.value(m.ROUNDS, "x", "done") == 2
    assert metrics.value(m.ROUNDS, "x", "error") == 4


async def test_a_bug_ends_its_loop() -> None:
    work = Scripted(KeyError("bug"))
    runner = LoopRunner(m.Metrics(), Health())
    with pytest.raises(KeyError):
        await runner.run(Loop("x", work.once, work.pause))


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.2), (2, 0.4), (4, 1.6), (50, 15)])
def test_the_backoff_doubles_up_to_its_ceiling(failures: int, seconds: float) -> None:
    assert backoff(failures) == pytest.approx(seconds, rel=0.21)


async def test_the_process_ends_when_a_part_ends() -> None:
    async def returns() -> str:
        return "kopf stopped"

    async def fails() -> None:
        raise KeyError("bug")

    for work, why in ((returns(), "watch ended: kopf stopped"), (fails(), "KeyError")):
        supervisor = Supervisor()
        supervisor.start("watch", work)
        with pytest.raises(PartEnded, match=why):
            await supervisor.watch()


async def test_a_stopped_supervisor_cancels_its_tasks() -> None:
    supervisor, ended = Supervisor(), []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    supervisor.start("one", forever())
    supervisor.start("two", forever())
    await asyncio.sleep(0)
    supervisor.stop()
    await supervisor.watch()
    await supervisor.cancel()
    assert ended == [True, True]


async def test_a_supervisor_waits_for_a_goal_a_signal_or_the_end_of_a_part() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def goal() -> None:
        await asyncio.sleep(0)

    async def fails() -> None:
        raise KeyError("bug")

    supervisor = Supervisor()
    supervisor.start("one", forever())
    assert await supervisor.watch(goal())
    with pytest.raises(KeyError):
        await supervisor.watch(fails())
    supervisor.start("two", fails())
    with pytest.raises(PartEnded, match="two ended"):
        await supervisor.watch(forever())
    await supervisor.cancel()
    supervisor.stop()
    assert not await supervisor.watch(forever())


async def test_the_start_waits_for_what_may_come_and_gives_up_in_time() -> None:
    clock = FakeClock()
    answers = [StoreUnavailable("away"), StoreUnavailable("away"), "here"]

    async def attempt() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await patiently("PostgreSQL", attempt, within=60, clock=clock) == "here"

    async def never() -> Any:
        raise Unreachable("away")

    with pytest.raises(StartFailed, match="the API server is still away after"):
        await patiently("the API server", never, within=5, clock=clock)

    async def wrong() -> Any:
        raise DatabaseRefused("no")

    with pytest.raises(DatabaseRefused):
        await patiently("PostgreSQL", wrong, within=60, clock=clock)


class FakeApi:
    """Takes Events, or fails as told."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.failures: list[Exception] = []

    async def create(self, _path: str, body: dict[str, Any], *, lane: Lane) -> None:
        assert lane is Lane.EVENT
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(body["reason"])


def said(reason: str, number: int = 1) -> Announcement:
    key = ObjectKey("ns", "run", "0123456789")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Announcement(key, reason, number, "note", at, of_change=True)


async def test_an_event_with_a_number_of_its_own_lets_no_change_go() -> None:
    """Batches count from one, as changes do: theirs must not delete a run's."""
    announcer = Announcer(FakeApi(), m.Metrics(), most=1)  # type: ignore[arg-type]
    for number in (7, 8):
        announcer.announce(replace(said("BatchSucceeded", number), of_change=False))
    await announcer.drain()
    assert announcer.settled() == []


async def test_warnings_are_written_first_and_never_dropped_for_normal_ones() -> None:
    api, metrics = FakeApi(), m.Metrics()
    announcer = Announcer(api, metrics, most=3)  # type: ignore[arg-type]
    for number in range(3):
        assert announcer.announce(said("RunQueued", number))
    assert not announcer.announce(said("RunQueued", 9))
    assert announcer.announce(said("RunTakenOver"))
    assert len(announcer) == 3
    assert announcer.settled() == [0]  # it made room for the warning
    await announcer.drain()
    assert api.written == ["RunTakenOver", "RunQueued", "RunQueued"]
    assert sorted(announcer.settled()) == [1, 1, 2]
    assert announcer.settled() == []
    assert metrics.value(m.EVENTS, "dropped") == 2


async def test_an_event_that_exists_is_done_and_an_outage_keeps_it() -> None:
    api, metrics = FakeApi(), m.Metrics()
    announcer = Announcer(api, metrics)  # type: ignore[arg-type]
    api.failures = [Conflict("exists"), Unreachable("away"), Rejected("no")]
    for number in range(3):
        announcer.announce(said("RunFailed", number))
    assert (await announcer.run_once()).failed == 1
    assert len(announcer) == 1
    assert announcer.settled() == [0, 2]
    await announcer.drain()
    assert announcer.settled() == [1]
    assert api.written == ["RunFailed"]
    values = {it: metrics.value(m.EVENTS, it) for it in ("written", "exists", "failed")}
    assert values == {"written": 1, "exists": 1, "failed": 1}


async def test_normal_events_can_be_off() -> None:
    announcer = Announcer(FakeApi(), m.Metrics(), normal=False)  # type: ignore[arg-type]
    assert not announcer.announce(said("RunQueued"))
    assert announcer.announce(said("RunTakenOver"))
    assert len(announcer) == 1


def test_metrics_start_at_zero_and_forget_deleted_pools() -> None:
    metrics = m.Metrics()
    assert b'rowlock_operator_takeovers_total{reason="LeaseExpired"} 0.0' in metrics.text()
    metrics.show(m.POOL_RUNS, 3, "ns", "p", "running")
    assert metrics.value(m.POOL_RUNS, "ns", "p", "running") == 3
    metrics.forget(m.POOL_RUNS, "ns", "p", "running")
    metrics.forget(m.POOL_RUNS, "ns", "p", "running")
    assert b'pool="p"' not in metrics.text()


def test_a_standby_exports_nothing_about_runs_and_pools() -> None:
    metrics = m.Metrics(standby=True)
    metrics.show(m.LEADER, 0)
    metrics.show(m.MIRROR_OLDEST, 1)
    metrics.show(m.POOL_RUNS, 3, "ns", "p", "running")
    text = metrics.text().decode()
    gauges = {line.split()[2] for line in text.splitlines() if line.endswith(" gauge")}
    assert gauges == {
        f"rowlock_operator_{name}"
        for name in (
            "api_rate_limit", "build_info", "database_up", "leader", "leader_changes",
            "lease_renewed_timestamp_seconds", "loop_lag_seconds",
        )
    }  # fmt: skip
    assert "rowlock_operator_takeovers_total" in text
    metrics.lead()
    assert 'rowlock_operator_pool_runs{namespace="ns",pool="p",state="running"} 3.0' in (
        metrics.text().decode()
    )


def test_no_metric_is_labelled_by_a_run() -> None:
    allowed = {
        "kind", "outcome", "reason", "status", "lane", "code", "namespace", "pool", "state",
        "result", "loop", "version", "direction",
    }  # fmt: skip
    assert {label for metric in m.TABLE.values() for label in metric.labels} <= allowed


def test_the_reference_pages_are_up_to_date() -> None:
    assert list(reference.files().drift()) == []


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ROWLOCK_HTTP_PORT", "x", "ROWLOCK_HTTP_PORT"),
        ("ROWLOCK_NAMESPACES", "a,B", "'B' is no name of a namespace"),
        ("ROWLOCK_DEFAULT_MAX_TAKEOVERS", "-1", "ROWLOCK_DEFAULT_MAX_TAKEOVERS"),
        ("ROWLOCK_SWEEP_SECONDS", "1", "ROWLOCK_SWEEP_SECONDS"),
        ("ROWLOCK_LEASE_RENEW_SECONDS", "15", "ROWLOCK_LEASE_RENEW_SECONDS"),
        ("ROWLOCK_LEASE_RETRY_SECONDS", "6", "at most half of ROWLOCK_LEASE_RENEW_SECONDS"),
        ("ROWLOCK_DATABASE_URL", "", "ROWLOCK_DATABASE_URL is not set"),
    ],
)
def test_a_wrong_setting_is_one_line(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", "postgresql://u:hidden@h/d")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert words in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flags_win_and_namespaces_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", "postgresql://u:hidden@h/d")
    monkeypatch.setenv("ROWLOCK_NAMESPACES", "a, b,a,")
    monkeypatch.setenv("ROWLOCK_HTTP_PORT", "1")
    settings = load_settings(http_port=2, log_format=None)
    assert settings.namespaces == ("a", "b")
    assert settings.http_port == 2
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("minor", "old"),
    [("31", True), ("31+", True), ("32", False), ("32+", False), ("100", False), ("", False)],
)
def test_a_cluster_before_its_oldest_release_is_too_old(minor: str, old: bool) -> None:
    assert too_old({"major": "1", "minor": minor}) is old


def test_an_answer_without_a_release_is_no_reason_to_refuse() -> None:
    assert not too_old("ok")
    assert not too_old({})
    assert too_old({"major": "0", "minor": "40"})
    assert not too_old({"major": "2", "minor": "0"})
