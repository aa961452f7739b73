"""`ChatAgent` with `OpenAIChat` and a real server: a run survives what goes wrong on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from rowlock import (
    ChatAgent,
    InvalidOutput,
    ModelTimeouts,
    OpenAIChat,
    Prices,
    StepFailed,
    tool,
)
from rowlock.testing import Crashed, MemoryJournal, run_agent
from tests import model_servers as servers
from tests.model_servers import DONE, Answer, Exchange, ModelServer, delta, plain, raw, serving

KEY = "sk-proj-0123456789abcdef"
MEGABYTE = 1_000_000
CUT = raw(
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class Verdict(BaseModel):
    """A typed answer."""

    good: bool
    why: str


@tool(side_effects="none")
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool(side_effects="none")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def chat(server: ModelServer, *, output: Any = None, **options: Any) -> ChatAgent:
    """Return an agent that asks the server."""
    model = OpenAIChat("m", base_url=server.url, api_key=KEY, **options)
    return ChatAgent("chat", model, "Be brief.", [shout, add], output=output)


def last(exchange: Exchange) -> dict[str, Any]:
    """Return the last message of a request."""
    return exchange.json["messages"][-1]  # type: ignore[no-any-return]


async def test_a_conversation_with_parallel_calls() -> None:
    """What the server sees is what the API asks for; text, usage and cost come back."""
    asked = servers.calls(("c1", "shout", '{"text": "é"}'), ("c2", "add", '{"a": 1, "b": 2}'))
    async with serving(asked, servers.speech("Well done")) as server:
        journal = MemoryJournal()
        agent = chat(server, prices=Prices(1.0, 2.0))

        assert await run_agent(agent, "go", journal=journal) == "Well done"

    first, second = (exchange.json for exchange in server.seen)
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert [one["function"]["name"] for one in first["tools"]] == ["shout", "add"]
    assert second["messages"][2:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "shout", "arguments": '{"text": "é"}'},
                },
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "É"},
        {"role": "tool", "tool_call_id": "c2", "content": "3"},
    ]
    assert "".join(journal.published) == "Well done"
    assert journal.usage == (20, 10, 40)
    assert server.connections == 1


@pytest.mark.parametrize(
    ("fault", "wait"),
    [
        (plain("429 Too Many Requests", b"", "Retry-After: 7"), 7),
        (plain("429 Too Many Requests"), None),
        (plain("500 Internal Server Error", b"<html>oops</html>", kind="text/html"), None),
        (CUT, None),
        (servers.events(b"data: {\n\n"), None),
        (servers.events(delta(content=None), delta(finish="stop"), DONE), None),
    ],
)
async def test_what_may_pass_is_asked_again(fault: Answer, wait: float | None) -> None:
    """After as long as the server says, else about a second; the same question."""
    journal = MemoryJournal()
    async with serving(fault, servers.speech("Hello you")) as server:
        assert await run_agent(chat(server), "go", journal=journal) == "Hello you"

    assert server.seen[0].body == server.seen[1].body
    assert len(journal.pauses) == 1
    assert journal.pauses[0] == wait if wait else 0.75 <= journal.pauses[0] <= 1.25


async def test_a_server_that_stays_away_fails_the_attempt() -> None:
    """After five tries, with what it said last."""
    async with serving(plain("503 Service Unavailable", b'{"error":"overloaded"}')) as server:
        with pytest.raises(StepFailed, match=r"after 5 tries: ModelUnavailable.*503.*overloaded"):
            await run_agent(chat(server), "go")
    assert len(server.seen) == 5


async def test_what_will_not_pass_fails_at_once() -> None:
    """With the server's words and without the key, in the error and in history."""
    journal = MemoryJournal()
    words = b'{"error": {"message": "Incorrect API key provided: %b."}}' % KEY.encode()
    async with serving(plain("401 Unauthorized", words)) as server:
        with pytest.raises(StepFailed, match=r"first try: ModelRefused.*401.*Incorrect API key"):
            await run_agent(chat(server), "go", journal=journal)

    assert len(server.seen) == 1
    assert all(KEY.encode() not in entry.body for entry in journal.entries)


async def test_a_refusal_costs_what_it_cost() -> None:
    """Its tokens count towards the run's budget."""
    journal = MemoryJournal()
    refusal = servers.events(delta(refusal="No."), delta(finish="stop"), servers.usage(), DONE)
    async with serving(refusal) as server:
        with pytest.raises(StepFailed, match="the model declines: No"):
            await run_agent(chat(server), "go", journal=journal)
    assert b'"usage":[10,5,0]' in journal.entries[-1].body


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("shout", '{"text": "a', "the arguments of 'shout' do not fit"),
        ("shout", "not json", "the arguments of 'shout' do not fit"),
        ("shout", "", "text: is required"),
        ("scream", "{}", "there is no tool 'scream'. Tools: shout, add"),
        ("", "{}", "there is no tool ''"),
    ],
)
async def test_a_call_that_cannot_be_made_is_answered(name: str, arguments: str, told: str) -> None:
    """The model hears what is wrong, and the run goes on."""
    async with serving(servers.calls(("c", name, arguments)), servers.speech("Sorry")) as server:
        assert await run_agent(chat(server), "go") == "Sorry"
    assert told in last(server.seen[1])["content"]


async def test_a_typed_answer_is_asked_for_and_checked() -> None:
    """One that does not fit is sent back once."""
    good = '{"good": true, "why": "so"}'
    async with serving(servers.speech("Yes!"), servers.speech(good)) as server:
        answer = await run_agent(chat(server, output=Verdict), "go")

    assert answer == {"good": True, "why": "so"}
    form = server.seen[0].json["response_format"]
    assert form["json_schema"]["schema"]["required"] == ["good", "why"]
    assert "does not fit" in last(server.seen[1])["content"]


async def test_an_answer_cut_at_its_limit_degrades_the_run() -> None:
    """It is what the model said; a typed one that is cut does not fit."""
    cut = servers.speech('{"good": tr', finish="length")
    async with serving(cut) as server:
        result = await chat(server).execute(MemoryJournal(), "go")
        assert result.degraded == ("the model's answer was cut off at its limit of tokens",)
        with pytest.raises(InvalidOutput):
            await run_agent(chat(server, output=Verdict), "go")


async def test_a_takeover_does_not_ask_again() -> None:
    """What a turn said and cost is read back."""
    async with serving(
        servers.calls(("c", "shout", '{"text": "a"}')), servers.speech("Done")
    ) as server:
        journal = MemoryJournal(crash_at="shout:1.0")
        with pytest.raises(Crashed):
            await run_agent(chat(server), "go", journal=journal)
        result = await chat(server).execute(journal.takeover(), "go")

    assert (result.body, result.tokens_in, len(server.seen)) == (b'"Done"', 20, 2)


async def test_slow_bytes_are_no_fault() -> None:
    """Each byte of an answer in a packet of its own, within the limits."""

    async def answer(exchange: Exchange) -> None:
        await exchange.stream()
        stream = b"".join([*servers.said("Hello you"), servers.usage(), DONE])
        for place in range(len(stream)):
            await exchange.chunk(stream[place : place + 1])
        await exchange.chunk(b"")

    async with serving(answer) as server:
        agent = chat(server, timeouts=ModelTimeouts(between=5))
        assert await run_agent(agent, "go") == "Hello you"


async def test_a_megabyte_in_one_byte_chunks() -> None:
    """One line of it, a million chunks, one answer."""

    async def answer(exchange: Exchange) -> None:
        await exchange.stream()
        line = delta(content="x" * MEGABYTE)
        for place in range(0, len(line), 4096):
            part = line[place : place + 4096]
            await exchange.send(b"".join(b"1\r\n%c\r\n" % byte for byte in part))
        for piece in (delta(finish="stop"), DONE, b""):
            await exchange.chunk(piece)

    async with serving(answer) as server:
        assert await run_agent(chat(server), "go") == "x" * MEGABYTE
