"""Code that misbehaves ends its own run with the reason; its neighbours do not notice."""

from __future__ import annotations

import json

import pytest

from rowlock.states import FinalStatus
from tests.workers import Bench, bench_fixture  # noqa: F401

pytestmark = pytest.mark.timeout(180)

_GOOD = 40
#: Kind of misbehaviour to the reason of the run's failure, and what its message must say.
FAILS = {
    "nul-name": ("AgentError", "name"),
    "surrogate": ("AgentError", "surrogate"),
    "big-step": ("TooLarge", "16777216"),
    "big-result": ("TooLarge", "16777216"),
    "object": ("AgentError", "object"),
    "object-result": ("InvalidOutput", "object"),
    "coroutine": ("AgentError", "coroutine"),
    "unpicklable": ("AgentError", "Unpicklable: it holds a lock"),
    "exit": ("AgentError", "SystemExit: 3"),
    "exit-executor": ("AgentError", "SystemExit: 3"),
    "vanish-executor": ("AgentError", "exit code 3"),
    "never": ("ActiveDeadlineExceeded", "activeDeadlineSeconds"),
    "swallow": ("ActiveDeadlineExceeded", "activeDeadlineSeconds"),
    "speechless": ("AgentError", "Speechless"),
    "rude": ("AgentError", "Rude: out of my way"),
    "interrupt": ("AgentError", "KeyboardInterrupt"),
    "cancelled": ("AgentError", "CancelledError"),
    "group": ("AgentError", "several"),
    "deep": ("AgentError", "RecursionError"),
}
#: Kinds that are odd and allowed, to the run's result.
GOES_ON = {
    "nul": "a\0b",
    "fork": 70,
    "fork-executor": 1,
    "processes": [3, 6],
    "program": 0,
}


async def test_code_that_misbehaves_ends_its_own_run_and_no_other(bench: Bench) -> None:
    """All of them at once in one process, between healthy runs of the same batch."""
    good = await bench.enqueue("tests.bad_agents:good", count=_GOOD // 2)
    runs = {kind: await bad(bench, kind) for kind in [*FAILS, *GOES_ON]}
    good += await bench.enqueue("tests.bad_agents:good", count=_GOOD // 2)
    worker = bench.worker()
    ends = {kind: await bench.final(run, within=60) for kind, run in runs.items()}

    told = {kind: (ends[kind]["reason"], ends[kind]["message"]) for kind in FAILS}
    wrong = {
        kind: said
        for kind, said in told.items()
        if said[0] != FAILS[kind][0] or FAILS[kind][1] not in (said[1] or "")
    }
    assert wrong == {}
    assert {kind: json.loads(ends[kind]["result"] or b"null") for kind in GOES_ON} == GOES_ON

    for run in good:
        final = await bench.final(run)
        assert (final["status"], final["epoch"]) == (FinalStatus.SUCCEEDED, 1)
    effects = [tuple(effect[:2]) for effect in bench.effects()]
    assert len(effects) == len(set(effects)) == 2 * _GOOD
    assert len(worker.loops()) == 1
    assert await bench.sql.fetchval("SELECT count(*) FROM rowlock.worker") == 1, "it started anew"
    assert "A forked child of a worker's loop process was ended" in worker.log
    await bench.healthy()


async def bad(bench: Bench, kind: str) -> int:
    """Enqueue a run that misbehaves in one way."""
    folder = bench.folder / kind
    folder.mkdir()
    [run] = await bench.enqueue(
        "tests.bad_agents:bad", options={"active_deadline_seconds": 12}, folder=str(folder)
    )
    return run
