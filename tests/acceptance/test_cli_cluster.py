"""The commands through the cluster: a real API server, operator and worker, and kubectl's rights.

One stage holds many checks: an operator and a worker start once for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from typing import Any

import pytest
import yaml

from rowlock_operator.kube.resources import AGENT_RUNS, AGENTS, WORKER_POOLS
from tests.operators import (  # noqa: F401
    Stage,
    access,
    eventually,
    pool_spec,
    stage_fixture,
)
from tests.people import WALKER, Person, kubeconfig_of, person_fixture  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


async def prepared(stage: Stage) -> None:
    """Create an Agent and its pool."""
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    await stage.create(AGENTS, "walker", spec={"entrypoint": WALKER})


async def at_gate(person: Person, name: str) -> None:
    """Wait until an agent stands there."""

    async def look() -> bool:
        return (person.folder / f"waiting-{name}").exists()

    await eventually(look, f"an agent at gate {name}", within=60)


async def test_a_run_is_started_followed_through_a_takeover_told_and_retried(
    stage: Stage, person: Person
) -> None:
    await prepared(stage)
    await stage.operator()
    worker = person.worker("worker-a")
    follows = person.begins(
        "run", "walker", "--name", "order-7", "-i", person.task(gates=[1]), "--follow"
    )
    await at_gate(person, "1")
    await stage.shows("order-7", phase="Running", takeovers=0)

    [holder] = {int(line.split()[3]) for line in effects(person)}
    os.kill(holder, signal.SIGKILL)
    await stage.shows("order-7", takeovers=1, reason="Resumed", within=60)
    (person.folder / "gate-1").touch()

    assert await follows.ends() == 0, follows.err
    assert follows.out == "3\n"
    assert "run order-7: created" in follows.err
    assert "↻ taken over: WorkerDied after 1 steps" in follows.err
    assert "· Running: LeaseHeld, worker-a" in follows.err
    assert re.search(r"✓ run order-7 succeeded in .* s, taken over 1 time$", follows.err.strip())

    told = await person.reads("describe", "order-7")
    assert (told["phase"], told["result"], told["takeovers"]) == ("Succeeded", 3, 1)
    assert [lease["outcome"] for lease in told["leases"]] == ["WorkerDied", "Succeeded"]
    states = {it["type"]: it["status"] for it in told["conditions"]}
    assert (states["Resumed"], states["Finished"]) == ("True", "True")
    text = (await person.types("describe", "order-7")).stdout
    assert text.splitlines()[-1] == "3"
    assert re.search(r"^Resumed +True +WorkerDied", text, re.MULTILINE)

    events = await person.types("events", "order-7", "--follow", "-o", "json")
    happened = [json.loads(line) for line in events.stdout.splitlines()]
    assert events.returncode == 0, events.stderr
    assert [it["kind"] for it in happened] == [
        "queued", "started", "taken_over", "succeeded", "state",
    ]  # fmt: skip
    assert happened[-1]["seq"] == happened[-2]["seq"]
    later = await person.types("events", "order-7", "--after", happened[2]["seq"])
    assert re.findall(r" (\w+): ", later.stdout) == ["succeeded", "state"]

    await person.says(0, "run order-7: attempt 2 is queued", "retry", "order-7")
    await stage.shows("order-7", phase="Succeeded", attempt=2, within=60)
    await same_shapes(stage, person, told)
    assert worker.process.poll() is None


def effects(person: Person) -> list[str]:
    """Return what agents have left: run, step, call and the process that made it."""
    return (person.folder / "effects").read_text().splitlines()


async def same_shapes(stage: Stage, person: Person, told: dict[str, Any]) -> None:
    """Assert that the database answers with the keys with which the cluster does."""
    database = ("--database-url", stage.dsn)
    there = await person.reads("describe", told["id"], *database)
    assert list(there) == list(told)
    assert (there["agent"], there["result"]) == (told["agent"], told["result"])
    listed = await person.reads("list")
    [row] = await person.reads("list", *database, "-n", stage.namespace)
    assert list(row) == list(listed[0])
    assert (listed[0]["run"], listed[0]["id"]) == ("order-7", row["run"])
    [pool] = await person.reads("pools")
    assert list(pool) == list((await person.reads("pools", *database))[0])
    done = await person.reads("cancel", "order-7")
    assert list(done) == list(await person.reads("cancel", told["id"], *database))


async def test_a_waiting_run_is_found_held_continued_cancelled_and_redriven(
    stage: Stage, person: Person
) -> None:
    await prepared(stage)
    await stage.operator()
    given = ("-i", person.task(steps=1))
    run = (await person.types("run", "walker", *given, "-o", "name")).stdout.strip()
    assert run.startswith("walker-")
    await stage.shows(run, reason="WaitingForWorker")

    [waits] = await person.reads("queue")
    assert (waits["run"], waits["reason"], waits["place"]) == (run, "WaitingForWorker", None)
    assert [it["run"] for it in await person.reads("queue", run)] == [run]
    await person.says(1, f"run {run} is not suspended", "continue", run)
    await person.says(1, f"run {run} has not ended", "retry", run)
    held = await person.reads("suspend", run, "--reason", "look first")
    assert (held["run"], held["asked"], held["done"]) == (run, "suspend", True)
    item = await stage.existing(AGENT_RUNS, run)
    assert item["spec"]["desiredStateReason"] == "ada: look first"
    assert [it["run"] for it in await person.reads("list", "--phase", "suspended")] == [run]
    await person.says(0, run, "continue", run, "-o", "name")
    await stage.shows(run, phase="Queued")
    done = await person.types("cancel", run, "-o", "yaml")
    assert (yaml.safe_load(done.stdout)["said"], done.returncode) == ("ended", 0)
    await person.says(0, f"run {run}: ended", "cancel", run)
    await person.says(1, f"run {run} has ended", "suspend", run)
    again = await person.reads("retry", run)
    assert (again["attempt"], again["done"]) == (2, True)
    assert await person.reads("list", "--phase", "queued", "--agent", "nobody") == []

    key = ("run", "walker", *given, "--idempotency-key", "2026-05-07")
    first, second = await person.reads(*key), await person.reads(*key)
    assert (first["created"], second["created"]) == (True, False)
    assert first["run"] == second["run"]
    await person.says(2, "belongs to run", *key[:2], *key[4:], "-i", person.task(steps=2))
    late = await person.types("run", "walker", "--name", "late", *given, "--timeout", "0.5")
    assert (late.returncode, late.stdout) == (124, ""), late.stderr
    assert late.stderr.splitlines()[-1] == (
        "run late has not ended within 0.5 s, and goes on: rowlock describe late"
    )
    await person.says(2, "there is a run late already", "run", "walker", "--name", "late")
    await stage.shows("late", reason="WaitingForWorker")


async def test_what_cannot_be_is_one_line_that_says_why(stage: Stage, person: Person) -> None:
    await prepared(stage)
    await stage.run("there")
    ours = ("describe", "events", "logs", "suspend", "continue", "cancel", "retry", "queue")
    for command in ours:
        await person.says(1, f"there is no run nix in namespace {stage.namespace}", command, "nix")
    await person.says(1, "not a number", "describe", "253229515461885953")
    await person.says(2, "'A_b' is no name of an AgentRun", "cancel", "A_b")
    await person.says(2, "agent: there is no 'nobody'", "run", "nobody")
    await person.says(2, "those known are walker", "run", "nobody")
    await person.says(2, "an Agent's name is given", "run", "walker:agent")
    await person.says(2, "pool: there is no 'gpu'", "run", "walker", "--pool", "gpu")
    await person.says(2, "--input: is not valid JSON", "run", "walker", "-i", '{"a": }')
    await person.says(2, "is not one of Pending", "list", "--phase", "sad")
    await person.says(2, "context: nix", "list", "--context", "nix")
    await person.says(2, "give one of them", "list", "--context", "nix", "--database-url", "x")
    away = person.folder / "away"
    away.write_text(re.sub(r"https://[\d.]+:\d+", "https://127.0.0.1:1", text_of(person)))
    await person.says(1, "the cluster is out of reach", "list", KUBECONFIG=str(away))
    await person.says(2, "kubectl is not on the PATH", "list", PATH=str(person.folder / "none"))
    (person.folder / "kubectl").mkdir(exist_ok=True)
    await person.says(2, "kubectl cannot be run: Permission", "list", PATH=str(person.folder))
    await person.says(2, "doctor examines the database", "doctor")


def text_of(person: Person) -> str:
    """Return the kubeconfig."""
    return person.kubeconfig.read_text()


async def test_the_documented_rights_are_enough_and_others_are_named(
    stage: Stage, person: Person
) -> None:
    await prepared(stage)
    await stage.run("there")
    person.kubeconfig = kubeconfig_of(stage, "viewer", "rowlock-viewer")
    assert [it["run"] for it in await person.reads("list")] == ["there"]
    for command in ("pools", "queue", "logs", "events"):
        assert (await person.types(command, *["there"] * (command != "pools"))).returncode == 0
    who = f"you (system:serviceaccount:{stage.namespace}:viewer) may not"
    for command in ("suspend", "cancel"):
        await person.says(1, f"{who} patch agentruns in namespace", command, "there")
    await person.says(1, f"{who} create agentruns in namespace", "run", "walker")

    stage.kubectl("patch", "role", "rowlock-viewer", "--type=json", "-p", WITHOUT_EVENTS)
    assert (await person.reads("describe", "there"))["events"] is None
    await person.says(1, f"{who} list events in namespace", "events", "there")

    person.kubeconfig = kubeconfig_of(stage, "editor", "rowlock-viewer", "rowlock-editor")
    stage.patch("agentrun", "there", desiredState="Suspend")
    assert (await person.reads("continue", "there"))["run"] == "there"
    assert (await person.reads("run", "walker", "--name", "more"))["created"]
    person.kubeconfig = kubeconfig_of(stage, "nobody")
    for command in (("list",), ("pools",), ("describe", "there"), ("queue",)):
        await person.says(1, "nobody) may not ", *command)


WITHOUT_EVENTS = '[{"op": "remove", "path": "/rules/1"}]'


async def test_who_waits_is_told_of_a_deletion_and_of_an_interrupt(
    stage: Stage, person: Person
) -> None:
    await prepared(stage)
    waits = [person.begins("run", "walker", "--name", f"run-{n}", "--follow") for n in range(2)]
    for one in waits:
        await one.tells("Pending: not taken in yet")

    stage.kubectl("delete", "agentrun", "run-0")
    waits[1].process.send_signal(signal.SIGINT)

    assert [await one.ends() for one in waits] == [1, 130]
    assert waits[0].err.splitlines()[-1] == (
        "rowlock: run: AgentRun run-0 was deleted, and is cancelled"
    )
    assert waits[1].err.splitlines()[-1] == "run run-1 goes on: rowlock describe run-1"


async def test_kubectl_runs_it_as_a_plugin(stage: Stage, person: Person) -> None:
    """And then a database in the environment does not count: what is typed wins."""
    await stage.run("there")
    typed = ["kubectl", "rowlock", "list", "-n", stage.namespace, "-o", "name"]

    done = await asyncio.to_thread(
        subprocess.run,
        typed,
        env={**person.environment, "ROWLOCK_DATABASE_URL": stage.dsn},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "there\n"), done.stderr


async def test_a_question_is_listed_and_decided_once(stage: Stage, person: Person) -> None:
    await stage.run("order-7")
    asks = {
        "apiVersion": "rowlock.dev/v1alpha1",
        "kind": "AgentRunApproval",
        "metadata": {"name": "order-7-abc"},
        "spec": {"runRef": {"name": "order-7"}, "tool": "pay", "digest": "0123456789abcdef"},
    }
    file = person.folder / "approval.json"
    file.write_text(json.dumps(asks))
    stage.kubectl("create", "-f", str(file))

    [asked] = await person.reads("approvals", "order-7")
    assert (asked["run"], asked["tool"]) == ("order-7", "pay")
    await person.says(1, "has digest 0123456789abcdef", "approve", "order-7", "--digest", "other")
    decided = await person.reads("approve", "order-7", "--by", "ada")
    assert (decided["asked"], decided["digest"]) == ("approve", "0123456789abcdef")
    kept = yaml.safe_load(stage.kubectl("get", "aappr", "order-7-abc", "-o", "yaml"))
    assert kept["spec"]["decision"] == {
        "action": "Approve", "decidedBy": "ada", "digest": "0123456789abcdef",
    }  # fmt: skip
    await person.says(1, "has no open question", "deny", "order-7", "--reason", "no")
