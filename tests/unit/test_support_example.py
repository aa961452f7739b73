"""The support example: one conversation, one refund, wherever its worker dies."""

from __future__ import annotations

import asyncio
import importlib
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import rowlock.testing
from examples.support import agent as example
from examples.support import orders, payments, script
from rowlock import AgentDefinitionError, PermanentError
from rowlock.agents.protocol import Agent
from rowlock.testing import Crashed, MemoryJournal, StillClock, run_agent
from rowlock.testing.voices import Voices
from rowlock_operator.api import Agent as AgentResource
from rowlock_operator.api import AgentRun, WorkerPool

FOLDER = Path(example.__file__).parent
TICKET = {"order_id": "1001", "message": "It is broken."}
STEPS = [
    "model:1",
    "lookup_order:1.0",
    "model:2",
    "check_refund_policy:2.0",
    "model:3",
    "issue_refund:3.0",
    "model:4",
]


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep refunds in a file of this test."""
    path = tmp_path / "refunds.jsonl"
    monkeypatch.setenv("SUPPORT_LEDGER", str(path))
    return path


def lines(path: Path) -> list[Any]:
    """Return the JSON lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_damaged_order_is_refunded() -> None:
    """Four turns, three tool calls, one answer."""
    journal = MemoryJournal(run_id=77)
    answer = await run_agent(example.support, TICKET, journal=journal)

    assert list(dict.fromkeys(entry.key for entry in journal.entries)) == STEPS
    assert answer["refunded_cents"] == orders.find("1001").totals.paid_cents
    assert "1001" in answer["text"]
    assert journal.usage[1] == 165


async def test_each_order_has_its_own_refund(ledger: Path) -> None:
    """The script follows the conversation."""
    await asyncio.gather(
        *(
            run_agent(example.support, {"order_id": str(n)}, journal=MemoryJournal(run_id=n))
            for n in range(1001, 1021)
        )
    )

    assert {line["order_id"] for line in lines(ledger)} == {str(n) for n in range(1001, 1021)}


async def test_an_unknown_order_is_answered_without_a_refund(ledger: Path) -> None:
    """The tool's refusal reaches the model, not the run."""
    answer = await run_agent(example.support, {"order_id": "unknown"})

    assert "cannot find" in answer["text"]
    assert answer["refund_id"] is None
    assert lines(ledger) == []


async def test_every_prefix_of_history_leads_to_the_same_end(
    ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same result, same steps; what is finished is not repeated, and money moves once."""
    model = script.scripted_model()
    monkeypatch.setattr(example.support, "_model", model)
    journal = MemoryJournal(run_id=77)
    expected = await run_agent(example.support, TICKET, journal=journal)
    whole = [(entry.kind, entry.key, entry.body) for entry in journal.entries]

    for length in range(len(whole) + 1):
        model.calls = 0
        replay = journal.takeover(entries=length)

        assert await run_agent(example.support, TICKET, journal=replay) == expected
        assert [(entry.kind, entry.key, entry.body) for entry in replay.entries] == whole
        assert model.calls == sum(key.startswith("model:") for _, key, _ in whole[length:])

    assert len(lines(ledger)) == 1
    calls = lines(ledger.with_name(ledger.name + ".calls"))
    assert {call["key"] for call in calls} == {"77/issue_refund:3.0/1"}
    assert [call["repeat"] for call in calls].count(False) == 1


@pytest.mark.parametrize("crash_at", range(1, 9))
async def test_a_crash_before_any_record_moves_money_once(crash_at: int, ledger: Path) -> None:
    """The worst moment is after an effect and before its record: each of them is tried."""
    journal = MemoryJournal(run_id=77, crash_at=crash_at)
    with pytest.raises(Crashed):
        await run_agent(example.support, TICKET, journal=journal)

    answer = await run_agent(example.support, TICKET, journal=journal.takeover())

    assert [line["cents"] for line in lines(ledger)] == [answer["refunded_cents"]]


async def test_the_provider_refuses_a_key_for_another_refund() -> None:
    """As real ones do."""
    await payments.refund("1001", 100, idempotency_key="k")

    with pytest.raises(PermanentError, match="another refund"):
        await payments.refund("1001", 200, idempotency_key="k")


def _refund_many(path: str) -> None:
    """Refund fifty orders, from another process."""
    os.environ["SUPPORT_LEDGER"] = path

    async def refund_all() -> None:
        for n in range(50):
            await payments.refund(str(n), 100, idempotency_key=f"key-{n}")

    asyncio.run(refund_all())


def test_processes_share_a_ledger(ledger: Path) -> None:
    """Whoever comes second repeats; nobody pays twice, and no line is torn."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_refund_many, args=(str(ledger),)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sorted(line["key"] for line in lines(ledger)) == sorted(f"key-{n}" for n in range(50))
    assert len(lines(ledger.with_name(ledger.name + ".calls"))) == 150


async def test_without_a_ledger_nothing_is_written(
    ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For measuring."""
    monkeypatch.delenv("SUPPORT_LEDGER")

    refund, repeated = await payments.refund("1", 2, idempotency_key="k")

    assert (refund.cents, repeated, lines(ledger)) == (2, False, [])


async def test_a_demo_can_hold_a_run_after_its_refund(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which process and run are held, and waits for the file to go."""
    hold = tmp_path / "hold"
    hold.write_text("1001")
    monkeypatch.setenv("SUPPORT_HOLD_FILE", str(hold))
    journal = MemoryJournal(run_id=77)
    task = asyncio.create_task(run_agent(example.support, TICKET, journal=journal))
    held = tmp_path / "hold.held"
    while not lines(held) and not task.done():  # noqa: ASYNC110 (a file)
        await asyncio.sleep(0)

    assert lines(held) == [{"pid": os.getpid(), "run": "77"}]
    assert journal.entries[-1].key == "issue_refund:3.0"
    assert not task.done()
    hold.unlink()
    await task


async def test_the_repeated_refund_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that takes over goes on, though the file is still there."""
    await run_agent(example.support, TICKET, journal=(journal := MemoryJournal(run_id=77)))
    (tmp_path / "hold").write_text("1001")
    monkeypatch.setenv("SUPPORT_HOLD_FILE", str(tmp_path / "hold"))

    await run_agent(example.support, TICKET, journal=journal.takeover(entries=6))

    assert not (tmp_path / "hold.held").exists()


@pytest.mark.parametrize(("pace", "seconds"), [("instant", 0.0), ("demo", 1.0), ("hosted", 5.15)])
async def test_the_pace_is_set_by_the_environment(
    pace: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run waits as long as its pace says."""
    monkeypatch.setenv("SUPPORT_MODEL_PACE", pace)
    clock, model = StillClock(), script.scripted_model()
    monkeypatch.setattr(model, "_voices", Voices(clock))
    monkeypatch.setattr(example.support, "_model", model)

    await run_agent(example.support, TICKET)

    assert clock.monotonic() == pytest.approx(seconds, abs=0.005)


def test_an_unknown_pace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message lists the known ones."""
    monkeypatch.setenv("SUPPORT_MODEL_PACE", "fast")

    with pytest.raises(AgentDefinitionError, match="instant, demo, hosted"):
        script.scripted_model()


def test_the_conversation_has_the_size_that_it_is_measured_with() -> None:
    """A system prompt of about 1.6 KB and an order of about 1 KB."""
    assert 1500 <= len(example.INSTRUCTIONS) <= 1700
    assert 950 <= len(orders.find("1001").model_dump_json()) <= 1100


async def test_a_run_stays_within_its_budget_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's work per step is counted, not timed: machines differ, counts do not.

    That of the history in memory is left out: in production the engine is there.
    """
    stand_in = str(Path(rowlock.testing.__file__).parent)
    monkeypatch.delenv("SUPPORT_LEDGER")
    ticket = example.support.check_input(TICKET)
    await example.support.execute(MemoryJournal(), ticket)
    calls = 0

    def count(frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        code, caller = frame.f_code, frame.f_back
        by = code if caller is None or code.co_filename != "<string>" else caller.f_code
        calls += event == "call" and not by.co_filename.startswith(stand_in)

    sys.setprofile(count)
    try:
        result = await example.support.execute(MemoryJournal(), ticket)
    finally:
        sys.setprofile(None)

    assert calls / result.steps <= 47


def resources(name: str) -> list[Any]:
    """Return the resources of a manifest."""
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_the_manifests_fit_their_kinds() -> None:
    """As the operator reads them."""
    (agent_resource,) = map(AgentResource.model_validate, resources("agent.yaml"))
    (pool,) = map(WorkerPool.model_validate, resources("workerpool.yaml"))
    runs = [AgentRun.model_validate(run) for run in resources("runs.yaml")]

    defaults = agent_resource.spec.run_defaults
    assert defaults is not None
    assert defaults.worker_pool_ref is not None
    assert defaults.worker_pool_ref.name == resources("workerpool.yaml")[0]["metadata"]["name"]
    assert pool.spec.replicas == 0
    assert {run.spec.agent_ref.name for run in runs} == {"support"}


def test_the_manifests_inputs_fit_the_agent() -> None:
    """Each run's text is the JSON of a ticket."""
    runs = resources("runs.yaml")

    assert [run["metadata"]["name"] for run in runs] == [
        "refund-1001",
        "refund-1002",
        "refund-1003",
    ]
    for run in runs:
        ticket = example.support.check_input(json.loads(run["spec"]["input"]["text"]))
        assert run["metadata"]["name"] == f"refund-{ticket.order_id}"


def test_the_entry_point_names_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the examples folder on the path, as its manifest says."""
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    module, _, attribute = resources("agent.yaml")[0]["spec"]["entrypoint"].partition(":")

    found: Agent = getattr(importlib.import_module(module), attribute)

    assert found.name == "support"
