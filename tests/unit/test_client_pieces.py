"""The parts of the client that decide without a database."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from rowlock import ChatAgent, InvalidOutput, InvalidRequest, RunCancelled, RunFailed
from rowlock.agents.problems import Misfit
from rowlock.client.known import Defaults, Known, entrypoint_of
from rowlock.client.results import check_succeeded, value
from rowlock.client.starting import _batches
from rowlock.client.submission import Limits, template
from rowlock.options import decode
from rowlock.states import FinalStatus
from rowlock.store.reading import RunEnd
from rowlock.store.types import AgentId, NewRun, PoolId, RevisionId, RunId
from rowlock.testing import ScriptedModel
from tests import client_agents
from tests.client_agents import parrot, shouter

KNOWN = Known("a", AgentId(1), RevisionId(1), None, msgspec.json.decode, Defaults())
END = RunEnd(RunId(7), 1, FinalStatus.SUCCEEDED, None, None, "ok", 2, b"{}")


def test_a_worker_imports_an_agent_from_where_it_was_made() -> None:
    """This module has both names too."""
    assert entrypoint_of(shouter) == "tests.client_agents:shouter"
    assert entrypoint_of(parrot) == "tests.client_agents:parrot"
    assert client_agents.shouter is shouter


def test_an_agent_that_stands_in_no_module_cannot_be_started() -> None:
    hidden = ChatAgent("hidden", ScriptedModel([]), "")

    with pytest.raises(InvalidRequest, match="'hidden' stands in no module that a worker could"):
        entrypoint_of(hidden)


@pytest.mark.parametrize(
    ("asked", "agents", "field", "value"),
    [
        ({}, {}, "max_takeovers", 5),
        ({}, {"max_takeovers": 2}, "max_takeovers", 2),
        ({"max_takeovers": 0}, {"max_takeovers": 2}, "max_takeovers", 0),
        ({}, {"queue_deadline_seconds": 60.0}, "queue_deadline", 60.0),
        ({"queue_deadline": 5.0}, {"queue_deadline_seconds": 60.0}, "queue_deadline", 5.0),
        ({}, {}, "queue_deadline", None),
    ],
)
def test_the_call_comes_first_then_the_agents_defaults(
    asked: dict[str, Any], agents: dict[str, Any], field: str, value: object
) -> None:
    known = dataclasses.replace(KNOWN, defaults=Defaults(**agents))

    assert getattr(template(known, PoolId(1), Limits(**asked)), field) == value


def test_limits_of_an_agent_reach_the_options_of_its_runs() -> None:
    agents = Defaults(
        active_deadline_seconds=60,
        max_attempts=3,
        retry_backoff_seconds=400,
        budget={"maxTotalTokens": 10, "maxCostMicroUSD": 20},
    )
    known = dataclasses.replace(KNOWN, defaults=agents)

    options = decode(template(known, PoolId(1), Limits(max_attempts=1)).options)

    assert (options.active_deadline_seconds, options.max_attempts) == (60, 1)
    assert (options.retry_backoff_seconds, options.max_retry_backoff_seconds) == (400, 400)
    assert (options.max_total_tokens, options.max_cost_micro) == (10, 20)


@pytest.mark.parametrize(
    ("sizes", "portions"),
    [
        ([], []),
        ([1] * 2500, [1000, 1000, 500]),
        ([9 * 2**20] * 3, [1, 1, 1]),
        ([8 * 2**20] * 3, [2, 1]),
    ],
)
def test_a_statement_holds_a_thousand_runs_or_sixteen_mebibytes(
    sizes: list[int], portions: list[int]
) -> None:
    body = bytes(max(sizes, default=0))
    runs = [NewRun(AgentId(1), RevisionId(1), PoolId(1), body[:size]) for size in sizes]

    assert [len(batch) for batch in _batches(runs)] == portions


def test_how_a_run_ended_is_a_value_or_an_error_that_says_why() -> None:
    def misfit(body: bytes) -> object:
        raise Misfit("text: is required")

    check_succeeded(END)
    assert value(END, b"[1]", msgspec.json.decode) == [1]
    assert value(END, None, msgspec.json.decode) is None
    with pytest.raises(InvalidOutput, match="run 7 was written by other code: text: is required"):
        value(END, b"{}", misfit)
    failed = dataclasses.replace(
        END, status=FinalStatus.FAILED, reason="AgentError", message="no tea"
    )
    with pytest.raises(RunFailed, match="run 7 failed: AgentError: no tea"):
        check_succeeded(failed)
    cancelled = dataclasses.replace(
        END, status=FinalStatus.CANCELLED, reason="Cancelled", message="cancelled by ann"
    )
    with pytest.raises(RunCancelled, match="run 7 was cancelled by ann"):
        check_succeeded(cancelled)
