"""An agent of many steps: a real client, a fake sandbox, and a viewer of some runs.

The sandbox answers after 150 ms with a piece of this repository's own source text;
place and length follow from the run's number and the turn, so that whoever checks knows them, too.
Each command is one line in the ledger, by one system call: lines of many processes never mix,
and a command that was given twice would show as two lines.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel

from bench.agents.probe import Probe, probe
from rowlock import ChatAgent, ModelRequest, ModelTurn, OpenAIChat, tool
from rowlock.engine.live import LiveText

SANDBOX_SECONDS = 0.15
#: Characters of an output: median and bound of a small one, and of a bigger one.
_SIZES = {False: (1200, 6000), True: (3000, 16000)}
_SPREAD = 0.9

_ledger = os.open(
    os.environ.get("BENCH_LEDGER", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT
)


class Task(BaseModel):
    """What one run is to do; the model's server reads it in the conversation.

    Parameters
    ----------
    steps
        Turns that give the sandbox a command; the answer follows.
    big
        Its outputs are bigger.
    watched
        Somebody follows its live text.
    """

    number: int
    steps: int
    big: bool
    watched: bool


@lru_cache(1)
def _sources() -> str:
    root = Path(__file__).parents[2] / "worker-image"
    return "".join(path.read_text() for path in sorted(root.rglob("*.py")))


def output(number: int, turn: int, *, big: bool) -> str:
    """Return what the sandbox says in this turn of this run."""
    chance = random.Random(number * 1000 + turn)
    median, most = _SIZES[big]
    length = min(int(median * chance.lognormvariate(0.0, _SPREAD)), most)
    text = _sources()
    start = chance.randrange(len(text) - most)
    return text[start : start + length]


@tool(side_effects="non_idempotent")
async def run_command(number: int, turn: int, big: bool, command: str) -> str:  # noqa: ARG001
    """Run a command in the sandbox and return what it printed."""
    os.write(_ledger, f"{number}.{turn}\n".encode())
    await asyncio.sleep(SANDBOX_SECONDS)
    return output(number, turn, big=big)


class Viewed:
    """A model whose live text is followed in some runs, as far as another process.

    It takes the way that `rowlock dev` takes: decoded as it comes, joined for a moment, sent up.
    """

    def __init__(self, model: OpenAIChat) -> None:
        self.name = model.name
        self._model = model
        self._live: LiveText | None = None

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Answer once, with a viewer if the run's input says so."""
        seat = await probe()
        if b'\\"watched\\":true' in request.messages[1]:
            request = replace(request, emit=self._emit(seat, request), watched=lambda: True)
        return await self._model.turn(request)

    def _emit(self, seat: Probe, request: ModelRequest) -> Callable[[str], None]:
        if self._live is None:
            self._live = LiveText(seat.write, seat.unread)
        live, number = (
            self._live,
            int(request.messages[1].split(b'\\"number\\":')[1].split(b",")[0]),
        )
        return lambda text: live.say(number, str(request.turn), text)


_INSTRUCTIONS = (
    "You work in a sandbox with a checkout of a repository. Find out why its tests fail, one "
    "command at a time, say before each what you expect to see, and change nothing that you have "
    "not understood. When all tests pass, say in one paragraph what was wrong."
)

agent = ChatAgent(
    name="long",
    model=Viewed(OpenAIChat("recorded", base_url=os.environ.get("BENCH_MODEL"), api_key="")),
    instructions=_INSTRUCTIONS,
    tools=[run_command],
    input=Task,
    max_turns=200,
)
