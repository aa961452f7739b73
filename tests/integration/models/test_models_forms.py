"""A typed answer from servers that do not know every form in which it can be asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from rowlock import ChatAgent, OpenAIChat, StepFailed
from rowlock.testing import run_agent
from tests import model_servers as servers
from tests.model_servers import Answer, Exchange, delta, event, plain, serving

KEY = "sk-proj-0123456789abcdef"


class Verdict(BaseModel):
    """What the agent answers."""

    good: bool
    why: str = "no reason"


GOOD = servers.speech('{"good": true, "why": "so"}')
ANSWER = {"good": True, "why": "so"}


def agent(server: servers.ModelServer, output: Any = Verdict, **options: Any) -> ChatAgent:
    """Return an agent whose answer has a type."""
    model = OpenAIChat("m", base_url=server.url, api_key=KEY, **options)
    return ChatAgent("judge", model, "Judge.", output=output)


def form(exchange: Exchange) -> str:
    """Return in which form a request asked."""
    asked = exchange.json.get("response_format", {"type": "prompt"})
    return "strict" if asked.get("json_schema", {}).get("strict") else str(asked["type"])


def forms(server: servers.ModelServer) -> list[str]:
    """Return the forms of all requests."""
    return [form(exchange) for exchange in server.seen]


def refusal(message: str, *, status: str = "400 Bad Request", **more: Any) -> Answer:
    """Return a refusal as OpenAI writes it."""
    error = {"message": message, "type": "invalid_request_error", **more}
    return plain(status, json.dumps({"error": error}).encode())


#: As they are worded by servers: OpenAI, one that does not know the type, FastAPI, one in a stream.
REFUSALS = {
    "a schema": refusal(
        "Invalid schema for 'answer': 'minimum' is not permitted.", param="response_format"
    ),
    "a type": refusal("'json_schema' is not supported with this model"),
    "a field": plain(
        "422 Unprocessable Entity",
        b'{"detail":[{"loc":["body","response_format","json_schema","strict"],'
        b'"msg":"Extra inputs are not permitted","type":"extra_forbidden"}]}',
    ),
    "in its stream": servers.events(
        event(error={"message": "strict is unknown", "type": "invalid_request_error"})
    ),
}


async def test_a_model_is_held_to_the_type() -> None:
    """All fields are required and no others allowed; the type itself still has a default."""
    async with serving(GOOD) as server:
        assert await run_agent(agent(server), "go") == ANSWER

    [asked] = server.seen
    assert asked.json["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "strict": True,
            "schema": {
                "type": "object",
                "title": "Verdict",
                "description": "What the agent answers.",
                "properties": {
                    "good": {"type": "boolean", "title": "Good"},
                    "why": {"type": "string", "title": "Why"},
                },
                "required": ["good", "why"],
                "additionalProperties": False,
            },
        },
    }


@pytest.mark.parametrize("refused", REFUSALS.values(), ids=REFUSALS)
async def test_a_server_that_refuses_a_form_is_asked_in_the_next(refused: Answer) -> None:
    """At once, within the turn; and the next run asks in the form that was taken."""
    async with serving(refused, GOOD) as server:
        judge = agent(server)
        assert await run_agent(judge, "go") == ANSWER
        assert await run_agent(judge, "go on") == ANSWER

    assert forms(server) == ["strict", "json_schema", "json_schema"]
    assert (
        "default"
        in server.seen[1].json["response_format"]["json_schema"]["schema"]["properties"]["why"]
    )


async def test_a_server_that_knows_no_form_is_asked_in_words() -> None:
    """The schema then stands among the instructions."""
    no = refusal("response_format is unknown")
    async with serving(no, no, no, GOOD) as server:
        assert await run_agent(agent(server), "go") == ANSWER

    assert forms(server) == ["strict", "json_schema", "json_object", "prompt"]
    contents = [exchange.json["messages"][0]["content"] for exchange in server.seen]
    assert contents[:2] == ["Judge.", "Judge."]
    assert all('"why"' in content for content in contents[2:])


async def test_a_server_that_refuses_all_is_quoted_with_its_first_words() -> None:
    """Nothing is known then, so the next run begins at the beginning."""
    first = refusal(f"response_format: no, {KEY}")
    async with serving(first, refusal("response_format: no again")) as server:
        judge = agent(server, structured_output="json_object")
        for words in ("no, …", "no again"):
            with pytest.raises(StepFailed, match=words):
                await run_agent(judge, "go")

    assert forms(server) == ["json_object", "prompt"] * 2


@pytest.mark.parametrize(
    "other",
    [
        refusal("This model's maximum context length is 8192 tokens"),
        refusal("Incorrect API key provided", status="401 Unauthorized"),
        servers.events(delta(refusal="I cannot help with that"), delta(finish="stop")),
    ],
)
async def test_what_is_refused_for_another_reason_is_asked_once(other: Answer) -> None:
    """Another form would be refused, too."""
    async with serving(other, GOOD) as server:
        with pytest.raises(StepFailed, match="ModelRefused"):
            await run_agent(agent(server), "go")
    assert forms(server) == ["strict"]


@pytest.mark.parametrize("first", ["json_schema", "json_object", "prompt"])
async def test_an_author_may_begin_further_down(first: Any) -> None:
    """For a server whose strict mode is no good."""
    async with serving(GOOD) as server:
        assert await run_agent(agent(server, structured_output=first), "go") == ANSWER
    assert forms(server) == [first]


async def test_a_type_without_a_strict_schema_is_asked_for_as_it_is() -> None:
    """Here an object with fields of any name: strict mode knows none."""
    async with serving(servers.speech('{"a": 1}')) as server:
        assert await run_agent(agent(server, output=dict[str, int]), "go") == {"a": 1}
    assert forms(server) == ["json_schema"]


async def test_free_text_is_asked_for_in_no_form() -> None:
    """A server's words about forms then change nothing."""
    async with serving(refusal("response_format is unknown"), GOOD) as server:
        with pytest.raises(StepFailed, match="ModelRefused"):
            await run_agent(agent(server, output=None), "go")
    assert forms(server) == ["prompt"]
