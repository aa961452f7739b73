"""AgentRuns from apply to their end: a real API server, a real operator and a real worker."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rowlock_operator.kube.resources import AGENTS, WORKER_POOLS
from tests.example_programs import PATH, holds, lines, shown
from tests.operators import Stage, access, pool_spec, stage_fixture, states  # noqa: F401
from tests.workers import ROOT, LocalWorker

pytestmark = pytest.mark.cluster

RUN = "examples/research/run.yaml"
Start = Callable[..., LocalWorker]


@pytest.fixture
def start(stage: Stage, tmp_path: Path) -> Iterator[Start]:
    """Start a worker of the test's namespace, as the pages say it."""
    started: list[LocalWorker] = []

    def worker(**environment: str) -> LocalWorker:
        path = os.pathsep.join([PATH, str(ROOT)])
        flags = ("--pool", "default", "--namespace", stage.namespace, "--processes", "1")
        log = tmp_path / f"worker-{len(started)}.log"
        environment = {"PYTHONPATH": path, **environment}
        started.append(LocalWorker(stage.dsn, log, *flags, environment=environment))
        return started[-1]

    yield worker
    for one in started:
        one.destroy()


def quick(folder: Path) -> Path:
    """Return a copy of the example's AgentRun whose pages take next to no time."""
    manifest = yaml.safe_load((ROOT / RUN).read_text())
    task = json.loads(manifest["spec"]["input"]["text"])
    manifest["spec"]["input"]["text"] = json.dumps({**task, "seconds": 0.01})
    copy = folder / "run.yaml"
    copy.write_text(yaml.safe_dump(manifest))
    return copy


async def test_the_research_examples_page_holds_in_a_cluster(
    stage: Stage, start: Start, tmp_path: Path
) -> None:
    """Its commands in their order, each with what it prints; only the pages are quicker."""
    outage, calls = tmp_path / "outage", tmp_path / "calls"
    outage.write_text("17\n")
    await stage.operator()
    start(RESEARCH_OUTAGE=str(outage), RESEARCH_CALLS=str(calls))
    commands = {
        command: outputs[0]
        for command, outputs in shown("research").items()
        if command.startswith("kubectl ")
    }
    assert len(commands) == 6

    for command, output in commands.items():
        arguments = shlex.split(command.replace(RUN, str(quick(tmp_path))))[1:]
        if arguments[0] == "patch":
            outage.unlink()
        arguments = [str(ROOT / one) if one.startswith("examples/") else one for one in arguments]
        printed = await asyncio.to_thread(stage.kubectl, *arguments)
        holds(printed, output)

    made = [json.loads(line) for line in lines(calls)]
    good = Counter(call["page"] for call in made if not call["failed"])
    assert good == Counter(range(1, 41)), "each page is read once"
    await stage.healthy()


async def test_a_run_over_the_budget_of_its_resource_says_so(stage: Stage, start: Start) -> None:
    """Each limit is its own, else its Agent's; no attempt follows; its status tells all."""
    await stage.create(WORKER_POOLS, "default", spec=pool_spec())
    spec = {
        "entrypoint": "tests.spending_agents:spender",
        "runDefaults": {"budget": {"maxCostMicroUSD": 1500}, "maxAttempts": 3},
    }
    await stage.create(AGENTS, "support", spec=spec)
    await stage.operator()
    start()
    task = {"text": json.dumps({"folder": str(stage.folder), "steps": 4})}
    await stage.run("tokens", input=task, budget={"maxTotalTokens": 25, "maxCostMicroUSD": 9000})
    await stage.run("dollars", input=task)
    enough = {"maxTotalTokens": 40, "maxCostMicroUSD": 4000}
    await stage.run("within", input=task, budget=enough)

    tokens = await stage.shows("tokens", phase="Failed", reason="BudgetExceeded")
    dollars = await stage.shows("dollars", phase="Failed", reason="BudgetExceeded")
    within = await stage.shows("within", phase="Succeeded")

    for status in (tokens, dollars):
        assert states(status)["Finished"] == "True/BudgetExceeded"
        assert states(status)["Succeeded"] == "False/BudgetExceeded"
        assert states(status)["Running"] == "False/Finished"
        assert status["attempt"] == 1
    assert tokens["usage"] == {"inputTokens": 27, "outputTokens": 3, "costMicroUSD": 3000}
    assert tokens["failure"]["reason"] == "BudgetExceeded"
    assert "30 tokens, more than its maxTotalTokens of 25" in tokens["failure"]["message"]
    assert dollars["usage"]["costMicroUSD"] == 2000
    assert "maxCostMicroUSD of 1500" in dollars["failure"]["message"]
    assert within["usage"]["costMicroUSD"] == 4000
    [*_, event] = await stage.announced("tokens", "RunQueued", "RunStarted", "RunFailed")
    assert (event["type"], event["note"][:16]) == ("Warning", "BudgetExceeded: ")
    columns = stage.kubectl("get", "arun", "tokens", "--no-headers").split()
    assert columns[:5] == ["tokens", "support", "Failed", "BudgetExceeded", "1"]
    await stage.healthy()
