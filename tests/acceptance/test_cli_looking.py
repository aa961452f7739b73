"""`rowlock list, describe, events, queue, pools`: what people see of runs that real workers run."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest
import yaml

from rowlock.states import FinalStatus
from rowlock.store import lines
from rowlock.store.types import RunId
from tests.acceptance.test_run_commands import rowlock, says
from tests.acceptance.test_worker_waits import AGENTS, QUICK, parked, questions
from tests.workers import Bench, bench_fixture, eventually  # noqa: F401

SPENDER = "tests.spending_agents:spender"


async def documents(bench: Bench, *arguments: object) -> Any:
    """Return what a command answers a program."""
    done = await rowlock(bench, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_runs_are_listed_by_agent_phase_and_age(bench: Bench) -> None:
    old, new = await bench.enqueue("walker", count=2)
    [other] = await bench.enqueue(AGENTS + "sleeper")
    await rowlock(bench, "cancel", new, "--reason", "typo")

    async def names(*filters: str) -> list[int]:
        done = await rowlock(bench, "list", "-o", "name", *filters)
        assert done.returncode == 0, done.stderr
        return [int(line) for line in done.stdout.split()]

    assert await names() == [other, new, old]
    assert await names("--agent", "walker") == [new, old]
    assert await names("--phase", "cancelled") == [new]
    assert await names("--phase", "Queued", "--limit", "1") == [other]
    assert await names("--since", "1h") == [other, new, old]
    assert await names("--since", "2999-01-01") == []
    assert await names("-n", "team-a") == []
    table = (await rowlock(bench, "list", "--agent", "walker")).stdout.splitlines()
    assert table[0].split()[:3] == ["run", "agent", "phase"]
    assert table[1].split()[:3] == [str(new), "walker", "Cancelled"]
    [shown] = yaml.safe_load((await rowlock(bench, "list", "--limit", "1", "-o", "yaml")).stdout)
    assert (shown["id"], shown["phase"]) == (other, "Queued")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("list", "--phase", "sad"), "phase: 'sad' is not one of Queued"),
        (("list", "--since", "yesterday"), "--since: 'yesterday' is no time"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_exit_code_two(
    bench: Bench, arguments: tuple[str, ...], text: str
) -> None:
    await says(bench, 2, text, *arguments)


async def test_a_run_that_never_was_is_one_line(bench: Bench) -> None:
    for command in ("describe", "events", "queue"):
        await says(bench, 1, f"there is no run {1 << 60}", command, 1 << 60)
    await says(bench, 1, f"there is no run {1 << 60}", "events", "--follow", 1 << 60)
    await says(
        bench, 2, "RUN: 'order-7' is no number of a run, as 2531771558", "describe", "order-7"
    )
    await says(bench, 2, "is no number of a run", "describe", 1 << 70)


async def test_a_lost_worker_is_told_with_its_takeover(bench: Bench) -> None:
    first = bench.worker()
    [run] = await bench.enqueue("walker", gates=[1])
    await bench.waiting("1")
    first.signal_group(signal.SIGKILL)
    bench.open_gate("1")
    bench.worker()
    await bench.final(run)

    told = await documents(bench, "describe", run)

    assert (told["phase"], told["result"], told["takeovers"]) == ("Succeeded", 3, 1)
    steps = [line["what"].partition("#")[0] for line in told["timeline"]]
    assert steps.count("taken over") == 1
    assert [step for step in steps if step.startswith("step-")] == ["step-0", "step-1", "step-2"]
    assert {line["epoch"] for line in told["timeline"]} == {1, 2}
    text = (await rowlock(bench, "describe", run)).stdout
    assert "taken over" in text
    assert text.splitlines()[-1] == "3"


async def test_a_further_attempt_is_told_with_its_steps(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue(AGENTS + "pages", steps=2, failing=2)
    assert (await bench.final(run))["status"] == FinalStatus.FAILED
    failed = (await rowlock(bench, "describe", run)).stdout
    assert "AgentError" in failed
    assert "the provider is out" in failed
    bench.open_gate("provider")
    await rowlock(bench, "retry", run)
    await eventually(lambda: ended(bench, run, attempt=2), "the second attempt's end")

    told = await documents(bench, "describe", run)

    assert (told["attempt"], told["phase"]) == (2, "Succeeded")
    done = [(line["what"].partition(":")[0], line["attempt"]) for line in told["timeline"]]
    assert ("read", 1) in done
    assert ("read", 2) in done
    text = (await rowlock(bench, "describe", run)).stdout
    assert re.search(r"tries +worker +attempt$", text, re.MULTILINE)


async def ended(bench: Bench, run: RunId, attempt: int) -> bool:
    """Say whether that attempt is over."""
    return bool(
        await bench.sql.fetchval(
            "SELECT true FROM rowlock.run_final WHERE run_id = $1 AND attempt = $2", run, attempt
        )
    )


async def test_usage_is_told_while_a_run_goes_on_and_when_it_has_ended(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue(SPENDER, steps=3, gates=[2])
    await bench.waiting("2")

    async def steps() -> bool:
        return len((await documents(bench, "describe", run))["timeline"]) >= 2

    await eventually(steps, "two steps in history")
    meanwhile = await documents(bench, "describe", run)
    bench.open_gate("2")
    await bench.final(run)
    at_last = await documents(bench, "describe", run)

    used = [(told["tokens_in"], told["cost_micro"]) for told in (meanwhile, at_last)]
    assert used == [(18, 2_000), (27, 3_000)]
    assert "27 tokens in, 3 out, $0.003000" in (await rowlock(bench, "describe", run)).stdout


async def test_events_are_all_there_once_and_from_a_number_on(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue("walker", steps=4)
    await bench.final(run)

    async def seqs(*flags: str) -> list[int]:
        done = await rowlock(bench, "events", run, "-o", "json", *flags)
        assert done.returncode == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert (told[-1]["kind"], told[-1]["data"]["phase"]) == ("state", "Succeeded")
        return [event["seq"] for event in told if event["kind"] != "state"]

    every = await seqs()
    assert every == list(range(1, len(every) + 1))
    assert await seqs("--follow") == every
    assert await seqs("--after", "2") == every[2:]
    assert await seqs("--after", "2", "--follow") == every[2:]
    text = (await rowlock(bench, "events", run)).stdout.splitlines()
    assert len(text) == len(every) + 1
    assert "step_done step-0" in "\n".join(text)
    shown = list(yaml.safe_load_all((await rowlock(bench, "events", run, "-o", "yaml")).stdout))
    assert [event["seq"] for event in shown[:-1]] == every


async def test_followed_events_end_with_the_verdict(bench: Bench) -> None:
    bench.worker()
    [run] = await bench.enqueue(AGENTS + "pages", steps=1, failing=1)

    done = await rowlock(bench, "events", run, "--follow")
    stored = await rowlock(bench, "events", run)

    assert (done.returncode, stored.returncode) == (1, 0)
    assert "phase=Failed" in done.stdout.splitlines()[-1]


async def reasons(bench: Bench) -> dict[int, tuple[str, int | None]]:
    """Return why each run waits, and its place."""
    return {one["run"]: (one["reason"], one["place"]) for one in await documents(bench, "queue")}


async def test_the_queue_says_who_is_next_and_why_the_others_wait(bench: Bench) -> None:
    first, second, third = await bench.enqueue("walker", count=3)
    sleepers = await bench.enqueue(AGENTS + "sleeper", count=3, limits={"max_running": 1})
    await rowlock(bench, "suspend", second)

    assert await reasons(bench) == {
        first: ("WaitingForWorker", 1),
        sleepers[0]: ("WaitingForWorker", 2),  # agents take turns
        third: ("WaitingForWorker", 3),
        second: ("Suspended", None),
        sleepers[1]: ("ConcurrencyLimit", 1),
        sleepers[2]: ("ConcurrencyLimit", 2),
    }
    [place] = await documents(bench, "queue", sleepers[2])
    assert (place["reason"], place["place"]) == ("ConcurrencyLimit", 2)
    described = (await rowlock(bench, "describe", sleepers[2])).stdout
    assert "ConcurrencyLimit, for " in described
    assert "place 2 in line" in described


async def test_the_queue_shows_what_goes_on_alone_and_only_what_is_asked_for(bench: Bench) -> None:
    first, second, _ = await bench.enqueue("walker", count=3)
    alone = "UPDATE rowlock.run_ready SET quarantined = true WHERE run_id = $1"
    await bench.sql.execute(alone, first)

    assert (await reasons(bench))[first] == ("Quarantined", None)
    assert (await reasons(bench))[second] == ("WaitingForWorker", 1)
    table = (await rowlock(bench, "queue")).stdout.splitlines()
    assert table[0].split()[:4] == ["pool", "reason", "place", "run"]
    assert table[1].split()[:4] == ["default", "WaitingForWorker", "1", str(second)]
    assert len(table) == 4
    assert (await rowlock(bench, "queue", "--pool", "other", "-o", "name")).stdout == ""
    assert (await rowlock(bench, "queue", "-n", "other", "-o", "name")).stdout == ""
    names = (await rowlock(bench, "queue", "--limit", "1", "-o", "name")).stdout.split()
    assert names == [str(second), str(first)]


async def test_runs_that_wait_for_a_time_or_a_person_say_so(bench: Bench) -> None:
    bench.worker(environment=QUICK)
    [sleeper] = await bench.enqueue(AGENTS + "sleeper", seconds=600.0)
    [asker] = await bench.enqueue(AGENTS + "refunder")
    [again] = await bench.enqueue(
        AGENTS + "pages",
        steps=1,
        failing=1,
        options={"max_attempts": 2, "retry_backoff_seconds": 600.0},
    )
    await parked(bench, sleeper)
    await questions(bench, asker)
    await eventually(
        lambda: bench.sql.fetchval("SELECT true FROM rowlock.run_timer WHERE run_id = $1", again),
        "the wait before the second attempt",
        said=bench.said,
    )

    assert await reasons(bench) == {
        sleeper: ("Sleeping", None),
        asker: ("AwaitingApproval", None),
        again: ("RetryBackoff", None),
    }
    [one] = await documents(bench, "queue", sleeper)
    assert one["due_at"] is not None
    assert " to go" in (await rowlock(bench, "describe", sleeper)).stdout


async def test_what_does_not_wait_has_no_place(bench: Bench) -> None:
    [run] = await bench.enqueue("walker", gates=[0])
    bench.worker()
    await bench.waiting("0")
    await says(bench, 1, f"run {run} runs: it waits nowhere", "queue", run)
    bench.open_gate("0")
    await bench.final(run)
    await says(bench, 1, f"run {run} has ended: it waits nowhere", "queue", run)
    assert await lines.waiting(bench.store) == []


async def test_pools_show_what_waits_and_who_works(bench: Bench) -> None:
    await bench.enqueue("walker", count=2, gates=[0])
    [pool] = await documents(bench, "pools")
    assert (pool["claimable"], pool["workers"], pool["running"]) == (2, 0, 0)
    bench.worker("--slots", "1")
    await bench.waiting("0")

    [pool] = await documents(bench, "pools")

    assert (pool["claimable"], pool["workers"], pool["slots"], pool["running"]) == (1, 1, 1, 1)
    table = (await rowlock(bench, "pools")).stdout.splitlines()
    assert table[0].split() == [
        "pool", "workers", "slots", "running", "claimable", "quarantined", "waiting", "oldest",
    ]  # fmt: skip
    assert table[1].split()[:7] == ["default", "1", "1", "1", "1", "0", "0"]
    assert (await rowlock(bench, "pools", "-o", "name")).stdout == "default\n"
    assert (await rowlock(bench, "pools", "-n", "other", "-o", "name")).stdout == ""
