"""Agents that the tests of the client start by the object: a model in, a model out."""

from __future__ import annotations

from pydantic import BaseModel

from rowlock import ApprovalDenied, ChatAgent, Run, agent, tool
from rowlock.testing import ScriptedModel


class Question(BaseModel):
    """What is asked."""

    text: str
    times: int = 1


class Shout(BaseModel):
    """What comes back."""

    text: str


@agent(name="shouter")
async def shouter(run: Run, question: Question) -> Shout:
    """Shout what was asked, each time in a step of its own."""

    async def raise_voice(text: str) -> str:
        return text.upper()

    said = [await run.step(f"shout-{n}", raise_voice, question.text) for n in range(question.times)]
    return Shout(text=" ".join(said))


parrot = ChatAgent(name="parrot", model=ScriptedModel(["Hello to you too."]), instructions="Greet.")


class Payment(BaseModel):
    """What is to be paid."""

    cents: int


@tool(side_effects="idempotent", approval="always")
async def pay(cents: int) -> str:
    """Move money."""
    return f"paid {cents}"


@agent(name="payer")
async def payer(run: Run, payment: Payment) -> str:
    """Pay if a person allows it."""
    try:
        return await run.step("pay", pay, payment.cents)
    except ApprovalDenied as error:
        return str(error)
