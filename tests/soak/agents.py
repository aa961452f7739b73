"""Agents of the soak: each leaves a line in a ledger for all that it does to the world.

The ledger stands for providers that cannot take anything back.
A line holds agent, run, what was done, and the call id under which it was asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time

from pydantic import BaseModel

from rowlock import ChatAgent, OutcomeUnknown, Run, agent, tool
from rowlock.testing import ScriptedModel, tool_call


class Case(BaseModel):
    """One customer's case.

    Parameters
    ----------
    pause
        Seconds that a turn of the model takes.
    """

    number: int
    pause: float


def note(agent_name: str, run: Run, what: str) -> None:
    """Append one line in one write, so that lines of many processes never mix."""
    fd = os.open(os.environ["SOAK_LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, f"{agent_name} {run.id} {what} {run.call_id}\n".encode())
    finally:
        os.close(fd)


@agent(name="desk")
async def desk(run: Run, case: Case) -> str:
    """Think, refund, think, answer: most of it is waiting for a model."""

    async def think(turn: int) -> int:
        await asyncio.sleep(case.pause)
        return turn

    async def refund(number: int) -> str:
        note("desk", run, "refund")
        await asyncio.sleep(case.pause / 4)
        return f"re_{number}"

    await run.step("think", think, 1)
    await run.gather(*(run.step("look", think, 10 + n) for n in range(2)))
    refunded = await run.step("refund", refund, case.number, side_effects="idempotent")
    await run.step("think", think, 2)
    return refunded


def press(run: Run, number: int, seconds: float) -> str:
    """Hold the GIL of an executor for a while."""
    note("print", run, "press")
    until, digest = time.monotonic() + seconds, b"%d" % number
    while time.monotonic() < until:
        digest = hashlib.sha256(digest).digest()
    return digest.hex()


@agent(name="print")
async def printer(run: Run, case: Case) -> str:
    """Do work that blocks, in an executor, twice."""
    for copy in range(2):
        await run.step("press", press, copy, case.pause, side_effects="idempotent", retries=9)
    return "printed"


@agent(name="wire")
async def wire(run: Run, case: Case) -> str:
    """Do what may happen once at most, and say so when nobody knows whether it did."""

    async def transfer(number: int) -> int:
        note("wire", run, "transfer")
        await asyncio.sleep(case.pause)
        return number

    try:
        await run.step("transfer", transfer, case.number, side_effects="non_idempotent")
    except OutcomeUnknown:
        return "unknown"
    return "done"


@agent(name="hog")
async def hog(run: Run, case: Case) -> str:
    """Block the loop, below its stall ceiling."""

    async def block(number: int) -> int:
        note("hog", run, "block")
        time.sleep(case.pause)  # noqa: ASYNC251  to hold the loop is the point
        return number

    await run.step("block", block, case.number, side_effects="idempotent")
    return "released"


@agent(name="wobbly")
async def wobbly(run: Run, case: Case) -> str:
    """Fail in the first attempt, after an effect that is not repeated in the second."""

    async def ship(number: int) -> int:
        note("wobbly", run, "ship")
        return number

    await run.step("ship", ship, case.number, side_effects="idempotent")
    await asyncio.sleep(case.pause)
    if run.attempt == 1:
        raise ValueError("not at the first attempt")
    return "shipped"


@agent(name="napper")
async def napper(run: Run, case: Case) -> str:
    """Do something, sleep for so long that the run parks, and do something else."""

    async def knock(number: int) -> int:
        note("napper", run, "knock")
        return number

    for number in range(2):
        await run.step("knock", knock, number, side_effects="idempotent")
        await run.sleep(case.pause)
    return "rested"


@tool(side_effects="idempotent", approval="always")
async def pay(run: Run, cents: int) -> str:
    """Pay, once a person agreed."""
    note("asker", run, "pay")
    return f"paid {cents}"


asker = ChatAgent(
    name="asker",
    model=ScriptedModel([tool_call("pay", cents=100), "paid"]),
    instructions="Pay.",
    tools=[pay],
    input=Case,
)
