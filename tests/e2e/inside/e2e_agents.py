"""Agents that the pools of the e2e tests run; they speak with their test through the ledger."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request

import msgspec
from pydantic import BaseModel

from rowlock import ChatAgent, Run, agent, tool
from rowlock.agents.messages import ModelRequest
from rowlock.testing import ScriptedModel, tool_call

LEDGER = os.environ.get("E2E_LEDGER", "http://ledger:8080")


class Walk(BaseModel):
    """What the test wants.

    Parameters
    ----------
    label
        Begins the lines in the ledger.
    steps
        How many steps to do, named step-0 and so on.
    gates
        Numbers of steps that wait for the gate LABEL-NUMBER after their effect.
    seconds
        How long each step takes besides.
    greedy
        Number of the step that takes all memory when it is done for the first time; -1 for none.
    """

    label: str
    steps: int = 3
    gates: list[int] = []
    seconds: float = 0.0
    greedy: int = -1


def _ask(path: str, data: bytes | None = None) -> int | None:
    with urllib.request.urlopen(f"{LEDGER}{path}", data=data, timeout=30) as answer:  # noqa: S310  our own
        return json.loads(answer.read())


async def leave_effect(line: str) -> int:
    """Write a line into the ledger and return how often it is there."""
    times = await asyncio.to_thread(_ask, "/effects", line.encode())
    assert times is not None
    return times


async def gate(name: str) -> None:
    """Wait until the test opens the gate."""
    while True:
        try:
            await asyncio.to_thread(_ask, f"/gates/{name}")
        except urllib.error.HTTPError as error:
            error.close()
            await asyncio.sleep(0.05)
        else:
            return


@agent(name="walker")
async def walker(run: Run, walk: Walk) -> int:
    """Do steps one after the other, each with one effect."""

    async def effect(number: int) -> int:
        times = await leave_effect(f"{walk.label} step-{number}")
        if number == walk.greedy and times == 1:
            held = []
            while True:
                held.append(bytearray(os.urandom(1) * (8 << 20)))
        if number in walk.gates:
            await gate(f"{walk.label}-{number}")
        await asyncio.sleep(walk.seconds)
        return number

    return sum([await run.step(f"step-{n}", effect, n) for n in range(walk.steps)])


@tool(side_effects="idempotent", approval="always")
async def refund(run: Run, label: str) -> str:
    """Pay money back."""
    await leave_effect(f"{label} refund")
    return "refunded"


def _refund(request: ModelRequest) -> list[object]:
    asked = msgspec.json.decode(msgspec.json.decode(request.messages[1])["content"])
    return [tool_call("refund", "c1", label=asked["label"])]


def _thank(request: ModelRequest) -> str:
    return "Done."


refunder = ChatAgent("refunder", ScriptedModel([_refund, _thank]), "Refund.", [refund])
