"""Agents that the tests of the client start by the object: a model in, a model out."""

from __future__ import annotations

from pydantic import BaseModel

from rowlock import ChatAgent, Run, agent
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
