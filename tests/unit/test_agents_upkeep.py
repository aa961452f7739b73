"""A long conversation: each turn costs what that turn is long, not what was said before."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import msgspec
import pytest

from rowlock import ChatAgent, ModelRequest, ModelTurn, tool
from rowlock.agents.identity import DIGEST_BYTES
from rowlock.testing import Crashed, MemoryJournal, ScriptedModel, run_agent, tool_call

INSTRUCTIONS = "Count, and say what you counted. " * 40


@tool(side_effects="none")
async def count(upto: int) -> dict[str, Any]:
    """Count to a number and show the work."""
    return {"upto": upto, "work": f"counted {upto:04d} ünits " * 20}


def script(turns: int) -> list[ModelTurn]:
    """Return turns of equal length: all but the last call a tool, every third one two."""
    calling = [
        ModelTurn(
            f"Turn {turn:04d}: “next”, please.",
            tuple(
                tool_call("count", f"c{turn:04d}{place}", upto=turn)
                for place in range(1 + (turn % 3 == 0))
            ),
        )
        for turn in range(1, turns)
    ]
    return [*calling, ModelTurn("Done.")]


class Witness:
    """A scripted model that keeps the body of each request as it would be sent."""

    name = "witness"

    def __init__(self, turns: int) -> None:
        self.bodies: dict[int, bytes] = {}
        self._script = ScriptedModel(script(turns))

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Keep the body and answer."""
        self.bodies[request.turn] = request.body()
        return await self._script.turn(request)


def counter(model: Any, turns: int) -> ChatAgent:
    """Return the agent."""
    return ChatAgent("counter", model, INSTRUCTIONS, [count], max_turns=turns)


def recomputed(turns: int) -> list[list[dict[str, Any]]]:
    """Return the conversation before each turn, built anew from what was said."""
    said: list[dict[str, Any]] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": "go"},
    ]
    before = []
    for turn in script(turns):
        before.append(list(said))
        calls = [
            {
                "id": call.id,
                "function": {"name": call.name, "arguments": call.arguments},
                "type": "function",
            }
            for call in turn.tool_calls
        ]
        said.append({"role": "assistant", "content": turn.text, "tool_calls": calls})
        for call in turn.tool_calls:
            upto = msgspec.json.decode(call.arguments)["upto"]
            result = {"upto": upto, "work": f"counted {upto:04d} ünits " * 20}
            content = msgspec.json.encode(result).decode()
            said.append({"role": "tool", "tool_call_id": call.id, "content": content})
    return before


async def test_what_grows_by_its_end_is_what_all_of_it_would_be() -> None:
    """150 turns: each request and each digest is that of the whole conversation, byte by byte."""
    model, journal = Witness(150), MemoryJournal()

    await run_agent(counter(model, 150), "go", journal=journal)

    for turn, messages in enumerate(recomputed(150), start=1):
        encoded = [msgspec.json.encode(message) for message in messages]
        assert model.bodies[turn] == b"[" + b",".join(encoded) + b"]"
        whole = hashlib.blake2b(b"".join(encoded[1:]) + b"%d" % turn, digest_size=DIGEST_BYTES)
        entry = journal.recall(f"model:{turn}")
        assert entry is not None
        assert msgspec.json.decode(entry.body)["args"] == whole.hexdigest()


@pytest.mark.parametrize("turn", [2, 75, 150])
async def test_a_takeover_goes_on_with_the_same_bytes(turn: int) -> None:
    """What history gives back is what was sent before, from its first message to its last."""
    whole, resumed, journal = Witness(150), Witness(150), MemoryJournal(crash_at=f"model:{turn}")
    await run_agent(counter(whole, 150), "go")
    with pytest.raises(Crashed):
        await run_agent(counter(Witness(150), 150), "go", journal=journal)

    await run_agent(counter(resumed, 150), "go", journal=journal.takeover())

    assert resumed.bodies == {at: body for at, body in whole.bodies.items() if at >= turn}


async def stored_bytes(turns: int) -> int:
    """Return how much history a conversation of so many turns leaves."""
    journal = MemoryJournal()
    await run_agent(counter(ScriptedModel(script(turns)), turns), "go", journal=journal)
    return sum(len(entry.body) + len(entry.key) for entry in journal.entries)


async def test_history_grows_with_the_turns_and_no_faster() -> None:
    """Twice the turns, hardly more than twice the bytes."""
    assert await stored_bytes(200) <= 2.1 * await stored_bytes(100)


async def test_a_late_turn_takes_as_many_calls_as_an_early_one() -> None:
    """The third hundred turns take no more of Python's calls than the first, but for a few."""
    marks: dict[int, int] = {}
    calls = 0

    class Marking(ScriptedModel):
        async def turn(self, request: ModelRequest) -> ModelTurn:
            marks[request.turn] = calls
            return await super().turn(request)

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    agent = counter(Marking(script(304)), 304)
    sys.setprofile(profile)
    try:
        await run_agent(agent, "go")
    finally:
        sys.setprofile(None)

    early, late = marks[102] - marks[3], marks[303] - marks[204]
    assert 99 * 50 < late <= early * 1.005
