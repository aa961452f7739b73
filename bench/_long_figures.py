"""The figures of load B: what each second showed, and what the database holds afterwards."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from bench.agents.long import SANDBOX_SECONDS, Task, output
from rowlock.states import FIRST_LIFECYCLE_KIND, EventKind
from rowlock.store import bodies

#: Tokens of a turn that are no word: its opening, its end, what it used; a call's name.
_FRAME_TOKENS = 4


@dataclass(frozen=True)
class Second:
    """One second of the load.

    Parameters
    ----------
    at
        Seconds since the first run was asked for.
    worker_cores, postgres_cores, server_cores
        CPU time of all processes of each, by the wall's.
    worker_mb
        Resident memory of supervisor and loops; what they share counts for each.
    connections, active, waiting
        The worker's, those in a statement or transaction, and those of them that wait for a lock.
    writer_rows, writer_oldest
        Of all loops together, and the longest wait in seconds.
    lags, pauses
        How late a timer of 10 ms was, and how long collections took; of all loops, in seconds.
    late
        How old the oldest token of each piece of live text was when its viewer had it, in seconds.
    tokens, server_late
        Sent so far by the model's server, and by how many seconds one was late there at most.
    """

    at: float
    running: int = 0
    left: int = 0
    worker_cores: float = 0.0
    postgres_cores: float = 0.0
    server_cores: float = 0.0
    worker_mb: float = 0.0
    connections: int = 0
    active: int = 0
    waiting: int = 0
    writer_rows: float = 0.0
    writer_oldest: float = 0.0
    lags: Sequence[float] = ()
    pauses: Sequence[float] = ()
    late: Sequence[float] = ()
    tokens: int = 0
    server_late: float = 0.0

    def shown(self) -> dict[str, object]:
        """Return it for a file, distributions as milliseconds."""
        plain = {name: value for name, value in vars(self).items() if not isinstance(value, list)}
        return {
            **{n: round(v, 3) if isinstance(v, float) else v for n, v in plain.items()},
            "lag_ms": percentiles(self.lags),
            "late_ms": percentiles(self.late),
            "pause_ms": [round(pause * 1000, 2) for pause in self.pauses],
        }


@dataclass
class Verdict:
    """What the database and the ledger say of the runs.

    Parameters
    ----------
    problems
        What is wrong, a few words each.
    stretches
        Each run's time by what its model and sandbox take alone.
    """

    succeeded: int = 0
    expected: int = 0
    stored: int = 0
    takeovers: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    stretches: list[float] = field(default_factory=list)
    seconds: float = 0.0


def ideal_seconds(task: Task, *, rate: float, tokens: int) -> float:
    """Return what the model and the sandbox of a run take, and nothing else."""
    turns = (task.steps * (tokens + _FRAME_TOKENS) + _FRAME_TOKENS) / rate
    return turns + task.steps * SANDBOX_SECONDS


_ENDS = """
SELECT run_id, status, result, takeovers, extract(epoch FROM claimed_at)::float8 AS claimed,
       extract(epoch FROM finished_at)::float8 AS finished
FROM rowlock.run_final WHERE run_id = ANY($1::bigint[])
"""
_EVENTS = """
SELECT run_id, seq, kind, key, body FROM rowlock.run_event
WHERE run_id = ANY($1::bigint[]) ORDER BY run_id, seq
"""
_AT_ONCE = 20


async def verdict(
    reader: asyncpg.Connection,
    tasks: Mapping[int, Task],
    ledger: Iterable[str],
    *,
    rate: float,
    tokens: int,
) -> Verdict:
    """Look at each row of each run."""
    found = Verdict(expected=sum(3 * task.steps + 1 for task in tasks.values()))
    ends = await reader.fetch(_ENDS, list(tasks))
    for end in ends:
        task = tasks[end["run_id"]]
        good = end["status"] == 1 and bodies.decode(end["result"]) == _answer(task)
        found.succeeded += good
        found.takeovers += end["takeovers"]
        took = end["finished"] - end["claimed"]
        found.stretches.append(took / ideal_seconds(task, rate=rate, tokens=tokens))
    if ends:
        found.seconds = max(e["finished"] for e in ends) - min(e["claimed"] for e in ends)
    found.problems["runs without a good end"] = len(tasks) - found.succeeded
    run_ids = list(tasks)
    for place in range(0, len(run_ids), _AT_ONCE):
        await _look_at(reader, run_ids[place : place + _AT_ONCE], tasks, found)
    _compare_commands(tasks, ledger, found)
    return found


def _answer(task: Task) -> str:
    return f"all {task.steps} commands done"


async def _look_at(
    reader: asyncpg.Connection, run_ids: list[int], tasks: Mapping[int, Task], found: Verdict
) -> None:
    rows = await reader.fetch(_EVENTS, run_ids)
    by_run: dict[int, list[dict[str, Any]]] = {run_id: [] for run_id in run_ids}
    for row in rows:
        by_run[row["run_id"]].append(dict(row))
    for run_id, events in by_run.items():
        found.problems.update(problems_of(tasks[run_id], events))
        found.stored += sum(event["kind"] < FIRST_LIFECYCLE_KIND for event in events)


def problems_of(task: Task, events: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Return what is wrong with the history of one run."""
    steps = [event for event in events if event["kind"] < FIRST_LIFECYCLE_KIND]
    seen = Counter((event["kind"], event["key"]) for event in steps)
    due = Counter((EventKind.STEP_DONE, f"model:{turn}") for turn in range(1, task.steps + 2))
    for turn in range(1, task.steps + 1):
        due[EventKind.STEP_INTENT, f"run_command:{turn}.0"] += 1
        due[EventKind.STEP_DONE, f"run_command:{turn}.0"] += 1
    problems = Counter(
        {
            "events lost": (due - seen).total(),
            "events doubled or unknown": (seen - due).total(),
            "gaps in numbers": [e["seq"] for e in events] != list(range(1, len(events) + 1)),
        }
    )
    for event in steps:
        if event["kind"] == EventKind.STEP_DONE and event["key"].startswith("run_command:"):
            turn = int(event["key"].split(":")[1].split(".")[0])
            problems["outputs garbled"] += not _is_output(event["body"], task, turn)
    return problems


def _is_output(body: bytes, task: Task, turn: int) -> bool:
    stored = bodies.decode(body).get("result")
    return bool(stored == output(task.number, turn, big=task.big))


def _compare_commands(tasks: Mapping[int, Task], ledger: Iterable[str], found: Verdict) -> None:
    given = Counter(ledger)
    due = Counter(f"{t.number}.{turn}" for t in tasks.values() for turn in range(1, t.steps + 1))
    found.problems["commands not given"] = (due - given).total()
    found.problems["commands given twice"] = (given - due).total()


def figures(
    seconds: Sequence[Second], found: Verdict, *, idle: float, tasks: Mapping[int, Task]
) -> dict[str, object]:
    """Turn what was seen into figures; times in the unit that their name says."""
    lags = [lag for second in seconds for lag in second.lags]
    pauses = [pause for second in seconds for pause in second.pauses]
    late = [age for second in seconds for age in second.late]
    busy = [second for second in seconds if second.running > max(s.running for s in seconds) * 0.9]
    steps = sum(task.steps for task in tasks.values())
    cpu = sum(
        second.worker_cores * span for second, span in zip(seconds, _spans(seconds), strict=True)
    )
    stretches = sorted(found.stretches) or [0.0]
    return {
        "runs": len(tasks),
        "steps": steps,
        "succeeded": found.succeeded,
        "seconds": round(found.seconds, 1),
        "events_expected": found.expected,
        "events_stored": found.stored,
        "problems": {name: many for name, many in found.problems.items() if many},
        "takeovers": found.takeovers,
        "idle_stretch": round(idle, 3),
        "stretch_p50": round(statistics.median(stretches), 3),
        "stretch_p99": round(_at(stretches, 0.99), 3),
        "stretch_max": round(stretches[-1], 3),
        "worker_mb_max": round(max(second.worker_mb for second in seconds)),
        "worker_cores_busy": _mean([second.worker_cores for second in busy]),
        "worker_cpu_ms_per_step": round(cpu / steps * 1000, 2),
        "postgres_cores_busy": _mean([second.postgres_cores for second in busy]),
        "server_cores_busy": _mean([second.server_cores for second in busy]),
        "tokens_per_second_busy": round(_rate(busy)),
        "server_late_ms_max": round(max(second.server_late for second in seconds) * 1000),
        "lag_ms": percentiles(lags),
        "gc_pauses": len(pauses),
        "gc_pause_ms": percentiles(pauses),
        "connections_max": max(second.connections for second in seconds),
        "connections_waiting_max": max(second.waiting for second in seconds),
        "writer_rows_max": round(max(second.writer_rows for second in seconds)),
        "writer_oldest_ms_max": round(max(second.writer_oldest for second in seconds) * 1000),
        "late_ms": percentiles(late),
        "late_over_300_ms": sum(age > 0.3 for age in late),
        "late_pieces": len(late),
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the middle, p99 and the worst of times in seconds, as milliseconds."""
    ordered = sorted(values) or [0.0]
    marks = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(_at(ordered, share) * 1000, 2) for name, share in marks.items()}


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _spans(seconds: Sequence[Second]) -> list[float]:
    return [b.at - a.at for a, b in zip([Second(0.0), *seconds], seconds, strict=False)]


def _mean(values: Sequence[float]) -> float:
    return round(statistics.fmean(values), 3) if values else 0.0


def _rate(seconds: Sequence[Second]) -> float:
    if len(seconds) < 2:
        return 0.0
    first, last = seconds[0], seconds[-1]
    return (last.tokens - first.tokens) / (last.at - first.at)
