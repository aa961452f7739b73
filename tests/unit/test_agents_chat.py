"""`ChatAgent`: turns and tool calls are steps, and a model that errs is answered, not crashed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from rowlock import (
    AgentDefinitionError,
    AgentError,
    ChatAgent,
    InvalidInput,
    InvalidOutput,
    ModelRequest,
    ModelTurn,
    NonDeterministic,
    OutcomeUnknown,
    PermanentError,
    Run,
    StepFailed,
    Usage,
    tool,
)
from rowlock.states import EventKind
from rowlock.testing import Crashed, MemoryJournal, ScriptedModel, run_agent, tool_call

Build = Callable[..., ChatAgent[Any, Any]]


class Question(BaseModel):
    """A typed input."""

    topic: str
    depth: int = 1


class Answer(BaseModel):
    """A typed output."""

    text: str
    score: int


@tool(side_effects="none")
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool(side_effects="none")
async def measure(text: str) -> dict[str, int]:
    """Count letters."""
    return {"letters": len(text)}


@tool(side_effects="non_idempotent")
async def mail(text: str) -> str:
    """Send a mail."""
    raise ConnectionError("cut off")


@tool(side_effects="non_idempotent", on_interrupt="fail")
async def wire(text: str) -> str:
    """Send money."""
    raise ConnectionError("cut off")


@tool(side_effects="none")
async def refuse(text: str) -> str:
    """Know nothing."""
    raise PermanentError("there is no such customer")


def chat(
    *turns: Any, tools: Any = (shout, measure, mail, wire, refuse), **options: Any
) -> ChatAgent[Any, Any]:
    """Return an agent that follows a script."""
    return ChatAgent("chat", ScriptedModel(turns), "Be brief.", tools, **options)


def said(request: ModelRequest) -> list[tuple[str, str]]:
    """Return role and content of all messages."""
    messages = msgspec.json.decode(request.body())
    return [(message["role"], message["content"]) for message in messages]


class Recorder:
    """A model that keeps what it was asked and speaks by a script."""

    name = "recorder"

    def __init__(self, *turns: Any) -> None:
        self.seen: list[list[tuple[str, str]]] = []
        self._script = ScriptedModel(turns)

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Keep the conversation and answer."""
        self.seen.append(said(request))
        return await self._script.turn(request)


async def test_a_conversation_ends_with_text() -> None:
    """Instructions, input, tool results in their order: that is what the model sees."""
    model = Recorder([tool_call("shout", text="a"), tool_call("measure", text="b")], "Done.")
    agent = ChatAgent("chat", model, "Be brief.", [shout, measure])

    assert await run_agent(agent, "Hello") == "Done."
    assert model.seen[1] == [
        ("system", "Be brief."),
        ("user", "Hello"),
        ("assistant", ""),
        ("tool", "A"),
        ("tool", '{"letters":1}'),
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("hi", "hi"), ({"a": [1, 2]}, '{"a":[1,2]}'), (42, "42"), (["x"], '["x"]')],
)
async def test_any_input_is_shown(value: Any, shown: str) -> None:
    """A string as it is, everything else as JSON."""
    model = Recorder("ok")
    await run_agent(ChatAgent("chat", model, "Be brief."), value)

    assert model.seen[0][1] == ("user", shown)


@pytest.mark.parametrize("value", [None, ""])
async def test_a_conversation_needs_an_input(value: Any) -> None:
    """Nobody has said anything."""
    with pytest.raises(InvalidInput, match="needs an input"):
        await run_agent(chat("ok"), value)


async def test_a_typed_input_is_validated_before_any_turn() -> None:
    """And shown as the JSON of its model, defaults included."""
    model = Recorder("ok")
    agent = ChatAgent("chat", model, "Be brief.", input=Question)

    with pytest.raises(InvalidInput, match="topic: is required"):
        await run_agent(agent, {"depth": 2})
    await run_agent(agent, {"topic": "oars"})

    assert [turn[1] for turn in model.seen] == [("user", '{"topic":"oars","depth":1}')]
    assert agent.input_schema is not None
    assert chat().input_schema is None


async def test_each_turn_and_each_call_is_a_step() -> None:
    """Named by turn and place, so that a person can follow."""
    journal = MemoryJournal()
    calls = [tool_call("shout", text="a"), tool_call("shout", "2", text="a")]
    await run_agent(chat(calls, "ok"), "Hello", journal=journal)

    assert [entry.key for entry in journal.entries] == [
        "model:1",
        "shout:1.0",
        "shout:1.1",
        "model:2",
    ]


async def test_calls_of_one_turn_run_at_once_and_answer_in_order() -> None:
    """The second ends first; the model sees them as it asked."""
    ready = asyncio.Event()

    @tool(side_effects="none")
    async def slow() -> str:
        await ready.wait()
        return "slow"

    @tool(side_effects="none")
    async def quick() -> str:
        ready.set()
        return "quick"

    model, journal = Recorder([tool_call("slow"), tool_call("quick")], "ok"), MemoryJournal()
    await run_agent(ChatAgent("chat", model, "", [slow, quick]), "go", journal=journal)

    assert [content for role, content in model.seen[1] if role == "tool"] == ["slow", "quick"]
    assert [entry.key for entry in journal.entries][1:3] == ["quick:1.1", "slow:1.0"]


async def test_history_is_replayed_without_model_calls() -> None:
    """From every length of it; a turn that is recorded is never asked for again."""
    calls = [tool_call("shout", text="a"), tool_call("measure", text="b")]
    model = ScriptedModel([calls, tool_call("shout", text="c"), "ok"])
    agent = ChatAgent("chat", model, "Be brief.", [shout, measure])
    journal = MemoryJournal()
    expected = await run_agent(agent, "Hello", journal=journal)

    for length in range(len(journal.entries) + 1):
        replay, model.calls = journal.takeover(entries=length), 0

        assert await run_agent(agent, "Hello", journal=replay) == expected
        turns = sum(entry.key.startswith("model") for entry in journal.entries[:length])
        assert model.calls == 3 - turns
        assert {entry.key for entry in replay.entries} == {entry.key for entry in journal.entries}


async def test_usage_is_added_up_and_survives_a_takeover() -> None:
    """Replayed turns count as they counted."""
    turns = [
        ModelTurn("", (tool_call("shout", text="a"),), Usage(10, 2, 5)),
        ModelTurn("ok", usage=Usage(20, 3, 7)),
    ]
    journal = MemoryJournal()
    await run_agent(chat(*turns), "Hello", journal=journal)

    result = await chat(*turns).execute(journal.takeover(), "Hello")

    assert (result.tokens_in, result.tokens_out, result.cost_micro) == (30, 5, 12)
    assert result.steps == 3


async def test_text_is_shown_as_it_comes() -> None:
    """Only by the process that asks the model."""
    journal = MemoryJournal()
    await run_agent(chat("Hello you."), "Hi", journal=journal)
    replay = journal.takeover()
    await run_agent(chat("Hello you."), "Hi", journal=replay)

    assert (journal.published, replay.published) == (["Hello you."], [])


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (tool_call("shoot", text="a"), "there is no tool 'shoot'. Tools: shout, measure"),
        (tool_call("shout", loud="a"), "text: is required; loud: is not known"),
        (tool_call("refuse", text="a"), '{"error":"there is no such customer"}'),
        (tool_call("mail", text="a"), "may or may not have happened"),
    ],
)
async def test_what_goes_wrong_with_a_call_is_told_to_the_model(call: Any, answer: str) -> None:
    """The run goes on, and a replay tells it in the same words."""
    model, journal = Recorder(call, "ok"), MemoryJournal()
    agent = ChatAgent("chat", model, "", [shout, measure, mail, refuse])

    assert await run_agent(agent, "go", journal=journal) == "ok"
    assert answer in model.seen[1][-1][1]
    assert await run_agent(agent, "go", journal=journal.takeover(entries=-1)) == "ok"
    assert model.seen[1] == model.seen[2]


async def test_an_interrupted_call_is_told_to_the_model() -> None:
    """A crash in the middle of a mail: it is not sent again, and the model hears of it."""
    model, journal = Recorder(tool_call("mail", text="a"), "ok"), MemoryJournal(crash_at="mail:1.0")
    agent = ChatAgent("chat", model, "", [mail])
    with pytest.raises(Crashed):
        await run_agent(agent, "go", journal=journal)

    journal = journal.takeover()
    assert await run_agent(agent, "go", journal=journal) == "ok"
    assert "was interrupted: it may or may not have happened" in model.seen[1][-1][1]
    assert journal.kinds("mail:1.0") == [EventKind.STEP_INTENT, EventKind.STEP_FAILED]


async def test_an_unknown_outcome_may_fail_the_run_instead() -> None:
    """As its tool declares."""
    with pytest.raises(OutcomeUnknown, match="wire"):
        await run_agent(chat(tool_call("wire", text="a"), "ok"), "go")


async def test_a_tool_that_is_down_fails_the_attempt() -> None:
    """The model could only make something up; the next attempt tries again."""
    down = [OSError("down")] * 5

    @tool(side_effects="none")
    async def weather() -> str:
        if down:
            raise down.pop()
        return "fine"

    agent, journal = chat(tool_call("weather"), "ok", tools=[weather]), MemoryJournal()
    with pytest.raises(StepFailed, match="after 5 tries"):
        await run_agent(agent, "go", journal=journal)

    assert await run_agent(agent, "go", journal=journal.next_attempt()) == "ok"


async def test_a_plain_tool_knows_its_call() -> None:
    """In its thread, too."""

    @tool(side_effects="idempotent", blocking=False)
    def charge(run: Run, cents: int) -> str:
        return f"{run.call_id} {cents}"

    model = Recorder(tool_call("charge", cents=5), "ok")
    await run_agent(ChatAgent("chat", model, "", [charge]), "go", journal=MemoryJournal(run_id=9))

    assert model.seen[1][-1] == ("tool", "9/charge:1.0/1 5")


async def test_a_typed_answer_is_validated() -> None:
    """The result is JSON of the type, also out of a code fence."""
    agent = chat('```json\n{"text": "fine", "score": "4"}\n```', output=Answer)

    assert await run_agent(agent, "go") == {"text": "fine", "score": 4}


async def test_an_answer_that_does_not_fit_is_sent_back() -> None:
    """Each time with what is wrong now, and the schema; the repaired one is the result."""
    model = Recorder("fine", '{"text": "fine"}', '{"text": "fine", "score": 4}')

    result = await run_agent(ChatAgent("chat", model, "", output=Answer), "go")

    assert result == {"text": "fine", "score": 4}
    (_, first), (role, second) = model.seen[1][-1], model.seen[2][-1]
    assert role == "user"
    assert "does not fit: the answer: Invalid JSON" in first
    assert "does not fit: score: is required" in second
    assert '"properties":{"text"' in first


async def test_a_repair_is_a_turn_that_is_replayed() -> None:
    """A takeover in the middle of it asks the model nothing twice."""
    turns, journal = ("fine", '{"text": "fine", "score": 4}'), MemoryJournal()
    await run_agent(chat(*turns, output=Answer), "go", journal=journal)
    model = ScriptedModel(turns)
    again = ChatAgent("chat", model, "Be brief.", output=Answer)

    result = await run_agent(again, "go", journal=journal.takeover(entries=1))

    assert result == {"text": "fine", "score": 4}
    assert model.calls == 1


@pytest.mark.parametrize(("repairs", "asked"), [(0, 1), (1, 2), (2, 3), (None, 3)])
async def test_an_answer_that_never_fits_fails_the_run(repairs: int | None, asked: int) -> None:
    """With the reason InvalidOutput, after as many repairs as declared."""
    model = ScriptedModel(['{"text": "fine"}'] * 9)
    options = {} if repairs is None else {"repairs": repairs}

    with pytest.raises(InvalidOutput, match=r"'chat'.*score: is required"):
        await run_agent(ChatAgent("chat", model, "", output=Answer, **options), "go")

    assert model.calls == asked


async def test_the_last_turn_is_not_repaired() -> None:
    """What is wrong with it is said, and not that there were too few turns."""
    with pytest.raises(InvalidOutput, match="score: is required"):
        await run_agent(chat('{"text": "fine"}', output=Answer, max_turns=1), "go")


async def test_an_empty_answer_is_none() -> None:
    """It is sent back as well, though any text would do."""
    model = Recorder(" ", "Here I am.")

    assert await run_agent(ChatAgent("chat", model, ""), "go") == "Here I am."
    assert model.seen[1][-1] == (
        "user",
        "Your answer does not fit: the answer is empty.\nAnswer again.",
    )


def test_a_stored_result_is_read_as_the_declared_type() -> None:
    """By the agent that declares it; another type is found out."""
    typed, free = chat(output=Answer), chat()

    assert typed.read_result(b'{"text": "fine", "score": 4}') == Answer(text="fine", score=4)
    assert free.read_result(b'"fine"') == "fine"
    with pytest.raises(InvalidOutput, match=r"'chat'.*score: is required"):
        typed.read_result(b'{"text": "fine"}')


async def test_a_conversation_without_end_is_ended() -> None:
    """By its bound of turns."""
    agent = chat(*[tool_call("shout", text="a")] * 9, max_turns=3)

    with pytest.raises(AgentError, match="max_turns=3"):
        await run_agent(agent, "go")


async def test_other_words_before_a_recorded_turn_are_found_out() -> None:
    """History belongs to another conversation."""
    journal = MemoryJournal()
    await run_agent(chat("ok"), "Hello", journal=journal)

    with pytest.raises(NonDeterministic, match="model:1"):
        await run_agent(chat("ok"), "Goodbye", journal=journal.takeover())


async def test_edited_instructions_keep_the_turns_that_are_done() -> None:
    """A run under way goes on with the new ones from its next turn."""
    turns, journal = [tool_call("shout", text="a"), "ok"], MemoryJournal()
    await run_agent(chat(*turns), "Hello", journal=journal)
    model = Recorder(*turns)
    edited = ChatAgent("chat", model, "Be polite.", [shout])

    assert await run_agent(edited, "Hello", journal=journal.takeover(entries=2)) == "ok"
    assert [turn[0] for turn in model.seen] == [("system", "Be polite.")]


async def test_a_model_that_fails_is_asked_again() -> None:
    """After as long as it says."""

    class Overloaded(Exception):
        retry_after = 12

    errors: list[Exception] = [Overloaded()]

    def turn(request: ModelRequest) -> str:
        if errors:
            raise errors.pop()
        return "ok"

    journal = MemoryJournal()

    assert await run_agent(chat(turn), "go", journal=journal) == "ok"
    assert journal.pauses == [12]


async def test_a_model_that_answers_nonsense_fails_its_run() -> None:
    """The message says what a model must return."""

    class Broken:
        name = "broken"

        async def turn(self, _: ModelRequest) -> ModelTurn:
            return "hello"  # type: ignore[return-value]

    with pytest.raises(StepFailed, match="ModelTurn"):
        await run_agent(ChatAgent("chat", Broken(), ""), "go")


@pytest.mark.parametrize(
    ("build", "cure"),
    [
        (lambda: chat(tools=[shout, shout]), "two tools called 'shout'.*@tool"),
        (lambda: chat(tools=[print]), "@tool"),
        (lambda: chat(max_turns=0), "max_turns"),
        (lambda: chat(output=asyncio.Lock), "pydantic model"),
        (lambda: chat(input=asyncio.Lock), "pydantic model"),
        (lambda: ChatAgent("Chat", ScriptedModel([]), ""), "lower-case"),
        (lambda: ChatAgent("chat", object(), ""), "is no model"),  # type: ignore[arg-type]
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_import(build: Build, cure: str) -> None:
    """The message names the agent and what to do."""
    with pytest.raises(AgentDefinitionError, match=f"(?i)chat.*{cure}"):
        build()


async def test_upkeep_equals_a_full_recomputation_over_many_turns() -> None:
    """150 turns: what grew piece by piece is what the whole conversation would give."""
    bodies: list[bytes] = []

    class Long:
        name = "long"

        async def turn(self, request: ModelRequest) -> ModelTurn:
            bodies.append(request.body())
            if request.turn == 150:
                return ModelTurn("end")
            return ModelTurn(f"turn {request.turn}", (tool_call("shout", text=str(request.turn)),))

    journal, model = MemoryJournal(), Long()
    await run_agent(ChatAgent("chat", model, "S", [shout], max_turns=150), "go", journal=journal)

    whole = msgspec.json.decode(bodies[-1], type=list[msgspec.Raw])
    assert len(whole) == 2 + 149 * 2
    for turn, body in enumerate(bodies, start=1):
        seen = whole[: 2 * turn]
        assert body == b"[" + b",".join(seen) + b"]"
        recorded = journal.recall(f"model:{turn}")
        assert recorded is not None
        digest = hashlib.blake2b(b"".join(seen[1:]) + str(turn).encode(), digest_size=12)
        assert msgspec.json.decode(recorded.body)["args"] == digest.hexdigest()
