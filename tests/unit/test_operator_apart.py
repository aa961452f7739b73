"""What goes wrong with one object, row or stream is no reason to leave the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from rowlock.states import ChangeKind
from rowlock.store import changes as store
from rowlock.store import expiry
from rowlock.store.connection import Connection
from rowlock.store.types import Change, RunId, RunSnapshot
from rowlock_operator import metrics as m
from rowlock_operator.intake.apart import apart
from rowlock_operator.intake.departures import Departures
from rowlock_operator.intake.expiries import Expiries
from rowlock_operator.intake.holds import Holds, HoldSettings
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import (
    Conflict,
    Denied,
    Expired,
    Invalid,
    KubeError,
    Rejected,
    Throttled,
    Unreachable,
)
from rowlock_operator.kube.putoff import PutOff
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.mirror.announcements import Announcement
from rowlock_operator.mirror.announcer import Announcer
from rowlock_operator.mirror.desk import Shown, StatusDesk
from rowlock_operator.mirror.mirror import Mirror, MirrorSettings
from rowlock_operator.mirror.scope import Scope
from rowlock_operator.pods.watch import failures_after, pause
from tests.unit.test_operator_mirror import T0, final

CONNECTION = cast("Connection", None)
FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}


@dataclass
class Clock:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def _end(it: KubeError | int) -> int:
    if isinstance(it, KubeError):
        raise it
    return it


@pytest.mark.parametrize(
    "error",
    [Denied("no"), Conflict("no"), Rejected("no"), Invalid("no"), Unreachable("webhook")],
    ids=lambda error: type(error).__name__,
)
async def test_one_that_is_refused_is_put_off_alone(error: KubeError) -> None:
    put_off = PutOff()
    done = await apart({"bad": _end(error), "a": _end(1), "b": _end(2)}, put_off)
    assert done == {"a": 1, "b": 2}
    assert put_off.resting() == ["bad"]


@pytest.mark.parametrize("error", [Unreachable("away"), Throttled("slower")])
async def test_an_api_server_that_is_away_puts_nothing_off(error: KubeError) -> None:
    put_off = PutOff()
    with pytest.raises(type(error)):
        await apart({"a": _end(error), "b": _end(Unreachable("away"))}, put_off)
    assert not len(put_off)


async def test_a_bug_is_not_taken_for_a_refusal() -> None:
    async def bug() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await apart({"a": bug(), "b": _end(1)}, PutOff())


class Refusing:
    """An API server with many objects, which it lets nobody delete or read but for one."""

    def __init__(self, *, readable: bool) -> None:
        self.readable = readable
        self.deleted: list[str] = []
        self.read: list[str] = []

    async def get(self, path: str, **_: Any) -> dict[str, Any]:
        name = path.rsplit("/", 1)[1]
        self.read.append(name)
        if not self.readable and name != "good":
            raise Denied("forbidden")
        return {"metadata": {"name": name, "namespace": "ns", "uid": name}, "status": FINISHED}

    async def delete(self, path: str, **_: Any) -> None:
        name = path.rsplit("/", 1)[1]
        if name != "good":
            raise Denied("forbidden")
        self.deleted.append(name)


@pytest.mark.parametrize("readable", [True, False])
async def test_hundreds_that_may_not_be_deleted_hold_up_nothing(
    monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    names = [*(f"bad-{number}" for number in range(250)), "good"]

    async def due(
        _: Connection, *, limit: int, but: Sequence[str], **_more: Any
    ) -> list[expiry.ExpiredObject]:
        left = [name for name in names if name not in but]
        return [expiry.ExpiredObject("ns", name, name) for name in left[:limit]]

    monkeypatch.setattr(expiry, "expired", due)
    server, clock = Refusing(readable=readable), Clock()
    expiries = Expiries(
        cast("KubeClient", server),
        CONNECTION,
        cast("Departures", None),
        m.Metrics(),
        cluster="c",
        clock=clock,
    )
    for _ in range(3):
        await expiries.run_once()
    assert server.deleted == ["good"]
    assert len(server.read) == len(names)
    for _ in range(60):
        clock.now += 1
        await expiries.run_once()
    assert len(server.read) < len(names) * 8, "each rests for longer and longer"


async def test_hundreds_of_holds_that_are_refused_hold_up_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def live(*_: Any, **_more: Any) -> set[str]:
        return set()

    monkeypatch.setattr(expiry, "live", live)
    server = Refusing(readable=False)
    holds = Holds(cast("KubeClient", server), CONNECTION, m.Metrics(), HoldSettings(cluster="c"))
    names = [*(f"bad-{number}" for number in range(250)), "good"]
    holds.look_at([ObjectKey("ns", name, name) for name in names])
    reports = [await holds.run_once() for _ in range(3)]
    assert "good" in server.read
    assert [report.waiting for report in reports][-1] == 250


class Desk:
    """Shows everything at once, and remembers whom."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    async def show(self, key: ObjectKey, build: Any, **_more: Any) -> Shown:
        assert build({}) is not None
        self.shown.append(key.uid)
        return Shown.WRITTEN

    def generation(self, _uid: str) -> int:
        return 1


class Board:
    """Takes Events."""

    def __init__(self) -> None:
        self.said: list[Announcement] = []

    def announce(self, said: Announcement) -> bool:
        self.said.append(said)
        return False

    def settled(self) -> list[int]:
        return []


BAD, GOOD = RunId(1), RunId(2)


@dataclass
class Scene:
    """A mirror over given rows; no PostgreSQL and no API server."""

    mirror: Mirror
    desk: Desk
    board: Board
    metrics: m.Metrics
    forgotten: list[int]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    rows = [Change(n, RunId(n), ChangeKind.ENDED, 1, T0) for n in (BAD, GOOD)]
    forgotten: list[int] = []

    async def unshown(*_: Any, after: int, **_more: Any) -> list[Change]:
        return [row for row in rows if row.seq > after and row.seq not in forgotten]

    async def snapshots(_: Connection, ids: Sequence[RunId]) -> dict[RunId, RunSnapshot]:
        return {it: replace(final(), run_id=it, uid=str(it), revision=9) for it in ids}

    async def shown(_: Connection, seqs: Sequence[int]) -> None:
        forgotten.extend(seqs)

    async def time_ends(*_: Any) -> None:
        return None

    monkeypatch.setattr(store, "unshown", unshown)
    monkeypatch.setattr(store, "snapshots", snapshots)
    monkeypatch.setattr(store, "shown", shown)
    monkeypatch.setattr(expiry, "time_ends", time_ends)
    desk, board, metrics = Desk(), Board(), m.Metrics()
    cluster = final().cluster
    mirror = Mirror(
        CONNECTION,
        cast("StatusDesk", desk),
        cast("Announcer", board),
        scope=Scope(cluster, ()),
        gone=cast("Departures", None),
        metrics=metrics,
        settings=MirrorSettings(delay=0),
    )
    return Scene(mirror, desk, board, metrics, forgotten)


@pytest.mark.parametrize("part", ["row", "status", "metrics", "approvals", "event", "trace"])
async def test_one_bad_run_stops_no_part_of_the_mirror(
    monkeypatch: pytest.MonkeyPatch, scene: Scene, part: str
) -> None:
    _break(monkeypatch, scene, part)
    await scene.mirror.run_once()
    await scene.mirror.forget()
    assert str(int(GOOD)) in scene.desk.shown
    assert [said.number for said in scene.board.said if said.number == GOOD] == [GOOD]
    assert scene.forgotten == ([GOOD] if part in ("row", "status") else [BAD, GOOD])
    assert scene.metrics.value(m.MIRROR_ERRORS, part) == 1


def _break(monkeypatch: pytest.MonkeyPatch, scene: Scene, part: str) -> None:
    """Have one part of the mirror fail at the run BAD."""
    module = "rowlock_operator.mirror.mirror."

    def failing(real: Any) -> Any:
        def work(*given: Any, **more: Any) -> Any:
            about = [getattr(it, "run_id", it) for it in given]
            if BAD in about:
                raise ValueError("a bad row")
            return real(*given, **more)

        return work

    async def unreadable(_: Connection, ids: Sequence[RunId]) -> dict[RunId, RunSnapshot]:
        if BAD in ids:
            raise ValueError("a bad row")
        return {it: replace(final(), run_id=it, uid=str(it), revision=9) for it in ids}

    mirror = scene.mirror
    if part == "row":
        monkeypatch.setattr(store, "snapshots", unreadable)
    elif part == "approvals":
        mirror.on_change = failing(lambda _snapshot: None)
    elif part == "trace":
        mirror.on_end = failing(lambda _run_id: None)
    else:
        name = {"status": "run_status", "metrics": "score", "event": "announcement"}[part]
        from rowlock_operator.mirror import mirror as real

        monkeypatch.setattr(module + name, failing(getattr(real, name)))


async def test_what_is_only_shown_again_is_neither_told_nor_traced(
    monkeypatch: pytest.MonkeyPatch, scene: Scene
) -> None:
    # The row that is shown again is older than what really happened to its run meanwhile.
    rows = [
        Change(3, GOOD, ChangeKind.ENDED, 1, T0, again=True),
        Change(9, GOOD, ChangeKind.ENDED, 1, T0),
        Change(4, BAD, ChangeKind.ENDED, 1, T0, again=True),
    ]

    async def unshown(*_: Any, after: int, **_more: Any) -> list[Change]:
        return [row for row in rows if row.seq > after]

    monkeypatch.setattr(store, "unshown", unshown)
    ended: list[RunId] = []
    scene.mirror.on_end = ended.append
    await scene.mirror.run_once()
    assert sorted(scene.desk.shown) == ["1", "2"]
    assert [said.number for said in scene.board.said] == [9]
    assert ended == [GOOD]


@pytest.mark.parametrize(
    ("error", "lasted", "before", "after"),
    [
        (None, 120.0, 5, 0),
        (None, 0.0, 0, 1),
        (None, 0.1, 4, 5),
        (Expired("old"), 60.0, 3, 0),
        (Expired("old"), 0.0, 3, 4),
        (Unreachable("broken"), 60.0, 5, 1),
        (Unreachable("refused"), 0.0, 5, 6),
        (Denied("no"), 0.0, 0, 1),
    ],
)
def test_only_a_healthy_stream_is_followed_by_another_at_once(
    error: KubeError | None, lasted: float, before: int, after: int
) -> None:
    assert failures_after(before, error, lasted=lasted) == after


def test_pauses_grow_up_to_a_quarter_of_a_minute() -> None:
    pauses = [pause(failures) for failures in range(1, 20)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.2, 15.0)
    assert pause(1, denied=True) == 60.0
