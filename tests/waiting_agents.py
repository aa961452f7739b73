"""Agents that wait: for a time, for a person, or until somebody continues them.

They speak with their test as those of `agents_for_tests` do.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from rowlock import ChatAgent, PermanentError, Run, agent, tool
from rowlock.agents.messages import ModelRequest
from rowlock.testing import ScriptedModel, tool_call
from tests.agents_for_tests import gate, leave_effect


class Nap(BaseModel):
    """What the test wants; `gates` are numbers of steps that wait after their effect."""

    folder: Path
    seconds: float = 1.0
    steps: int = 2
    gates: list[int] = []
    failing: int = -1
    delay: float = 0.0


@agent(name="sleeper")
async def sleeper(run: Run, nap: Nap) -> str:
    """Do a step, sleep, do a step."""

    async def effect(name: str) -> str:
        leave_effect(nap.folder, run.id, name, run.call_id, os.getpid())
        return name

    await run.step("before", effect, "before")
    await run.sleep(nap.seconds)
    return await run.step("after", effect, "after")


@agent(name="busy-sleeper")
async def busy_sleeper(run: Run, nap: Nap) -> str:
    """Sleep in one branch while a step of the other waits for its gate."""

    async def effect() -> str:
        leave_effect(nap.folder, run.id, "work", run.call_id, os.getpid())
        await gate(nap.folder, "0")
        return "worked"

    async def sleep() -> str:
        await run.sleep(nap.seconds)
        return "slept"

    return " ".join(await run.gather(sleep(), run.step("work", effect)))


class Later(Exception):
    """A provider that wants to be asked again in an hour."""

    retry_after = 3600.0


@agent(name="patient")
async def patient(run: Run, nap: Nap) -> str:
    """Do a step whose provider is out until the test opens its gate."""

    async def effect() -> str:
        leave_effect(nap.folder, run.id, "try", run.call_id, os.getpid())
        if not (nap.folder / "gate-provider").exists():
            raise Later("come back in an hour")
        return "done"

    return await run.step("provider", effect, retries=2)


@agent(name="pages")
async def pages(run: Run, nap: Nap) -> list[int]:
    """Read 40 pages; one of them fails until the test opens the gate `provider`."""

    async def read(page: int) -> int:
        leave_effect(nap.folder, run.id, f"page-{page}", run.call_id)
        if page == nap.failing and not (nap.folder / "gate-provider").exists():
            raise PermanentError("the provider is out")
        await asyncio.sleep(nap.delay)
        return page

    return [await run.step("read", read, page, key=page) for page in range(1, nap.steps + 1)]


def _folder(request: ModelRequest) -> Path:
    user = msgspec.json.decode(request.messages[1])
    return Path(msgspec.json.decode(user["content"])["folder"])


def _refunds(request: ModelRequest) -> list[Any]:
    folder = str(_folder(request))
    return [tool_call("refund", f"c{n}", folder=folder, cents=n * 100) for n in (1, 2)]


def _refund(request: ModelRequest) -> list[Any]:
    return [tool_call("refund", "c1", folder=str(_folder(request)), cents=100)]


def _repeat(request: ModelRequest) -> str:
    """Answer with what the tools said."""
    told = [msgspec.json.decode(raw) for raw in request.messages]
    return " | ".join(message["content"] for message in told if message["role"] == "tool")


@tool(side_effects="idempotent", approval="always", approval_timeout=3600)
async def refund(run: Run, folder: str, cents: int) -> str:
    """Pay money back."""
    leave_effect(Path(folder), run.id, f"refund-{cents}", run.call_id, os.getpid())
    return f"refunded {cents}"


@tool(side_effects="idempotent", approval="always")
def refund_in_executor(run: Run, folder: str, cents: int) -> str:
    """Pay money back through a client that blocks."""
    leave_effect(Path(folder), run.id, f"refund-{cents}", run.call_id, os.getpid())
    return f"refunded {cents}"


def _refund_in_executor(request: ModelRequest) -> list[Any]:
    return [tool_call("refund_in_executor", "c1", folder=str(_folder(request)), cents=100)]


blocking_refunder = ChatAgent(
    "blocking-refunder",
    ScriptedModel([_refund_in_executor, _repeat]),
    "Refund.",
    [refund_in_executor],
)
refunder = ChatAgent("refunder", ScriptedModel([_refund, _repeat]), "Refund.", [refund])
twice = ChatAgent("twice", ScriptedModel([_refunds, _repeat]), "Refund.", [refund])


@tool(side_effects="idempotent")
async def pay(run: Run, folder: str, cents: int) -> str:
    """Pay money; nobody is asked unless the Agent object says so."""
    leave_effect(Path(folder), run.id, f"pay-{cents}", run.call_id, os.getpid())
    return f"paid {cents}"


def _pay(request: ModelRequest) -> list[Any]:
    return [tool_call("pay", "c1", folder=str(_folder(request)), cents=100)]


payer = ChatAgent("payer", ScriptedModel([_pay, _repeat]), "Pay.", [pay])
