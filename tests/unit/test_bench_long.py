"""What load B calls wrong: a check that finds nothing in a bad history would prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench._long_figures import percentiles, problems_of
from bench._long_server import Answers
from bench.agents.long import Task, output
from rowlock.agents.messages import user_message
from rowlock.states import EventKind
from rowlock.store import bodies

TASK = Task(number=7, steps=2, big=False, watched=False)
Events = list[dict[str, Any]]


def event(seq: int, kind: EventKind, key: str, result: object = None) -> dict[str, Any]:
    """Return a row of history."""
    return {"seq": seq, "kind": kind, "key": key, "body": bodies.encode({"result": result})}


def history() -> Events:
    """Return all rows of a run of two commands."""
    rows: Events = []
    for turn in (1, 2):
        said = output(TASK.number, turn, big=TASK.big)
        rows += [
            event(len(rows) + 1, EventKind.STEP_DONE, f"model:{turn}"),
            event(len(rows) + 2, EventKind.STEP_INTENT, f"run_command:{turn}.0"),
            event(len(rows) + 3, EventKind.STEP_DONE, f"run_command:{turn}.0", said),
        ]
    return [*rows, event(7, EventKind.STEP_DONE, "model:3")]


def lose(rows: Events) -> None:
    """Take a row out of the middle."""
    del rows[3]


def lose_the_last(rows: Events) -> None:
    """Take the last row away, which leaves no gap."""
    rows.pop()


def double(rows: Events) -> None:
    """Have a step twice."""
    rows.append({**rows[2], "seq": 8})


def garble(rows: Events) -> None:
    """Have another turn's output."""
    rows[5] = {**rows[5], "body": rows[2]["body"]}


@pytest.mark.parametrize(
    ("harm", "problems"),
    [
        (lambda _: None, {}),
        (lose, {"events lost": 1, "gaps in numbers": 1}),
        (lose_the_last, {"events lost": 1}),
        (double, {"events doubled or unknown": 1}),
        (garble, {"outputs garbled": 1}),
    ],
)
def test_each_harm_to_a_history_is_found(
    harm: Callable[[Events], None], problems: dict[str, int]
) -> None:
    """By its name, and nothing else is."""
    rows = history()
    harm(rows)
    found = problems_of(TASK, rows)
    assert {name: many for name, many in found.items() if many} == problems


def conversation(*answered: int) -> bytes:
    """Return a request in which these commands were answered."""
    messages = [user_message(TASK.model_dump_json())]
    messages += [
        b'{"role":"tool","tool_call_id":"call_7_%d","content":"x"}' % turn for turn in answered
    ]
    return b'{"messages":[' + b",".join(messages) + b"]}"


def test_the_models_server_gives_as_many_commands_as_were_asked_for() -> None:
    """Then its answer; a conversation that lost or doubled one is refused, and counted."""
    answers = Answers(30)
    assert b"call_7_1" in b"".join(answers.to(conversation()) or [])  # type: ignore[arg-type]
    assert b"call_7_2" in b"".join(answers.to(conversation(1)) or [])  # type: ignore[arg-type]
    assert b"2 commands done" in b"".join(answers.to(conversation(1, 2)) or [])  # type: ignore[arg-type]
    assert answers.wrong == 0

    assert [answers.to(conversation(*bad)) for bad in [(2,), (1, 1), (1, 2, 3)]] == [None] * 3
    assert answers.wrong == 3


def test_percentiles_are_those_of_all_values() -> None:
    """In milliseconds; of none they are zero."""
    values = [n / 1000 for n in range(100)]
    assert percentiles(values) == {"p50": 50.0, "p99": 99.0, "max": 99.0}
    assert percentiles([]) == {"p50": 0.0, "p99": 0.0, "max": 0.0}
