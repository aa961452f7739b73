"""What becomes of an AgentRun, in a table: run, then Agent, then installation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rowlock.states import FailureReason, WaitReason
from rowlock.store import bodies
from rowlock_operator.intake.agents import KnownAgent, known_agent
from rowlock_operator.intake.inputs import BadInput, ConfigMapKey, input_bytes
from rowlock_operator.intake.resolver import (
    Accepted,
    Refused,
    Surroundings,
    Waits,
    parse,
    resolve,
)
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.resources import ObjectKey
from rowlock_operator.settings import RunDefaults


def agent(**spec: Any) -> KnownAgent:
    content = {"entrypoint": "a:b", **spec}
    return known_agent(Seen("Agent", ObjectKey("ns", "support", "u"), 1, "1", spec=content))


def decide(
    spec: dict[str, Any],
    known: KnownAgent | None,
    *,
    pools: tuple[str, ...] = ("default",),
    entries: dict[ConfigMapKey, str | None] | None = None,
    **defaults: Any,
) -> Any:
    model = parse({"agentRef": {"name": "support"}, **spec})
    if isinstance(model, Refused):
        return model
    return resolve(
        model, Surroundings(known, frozenset(pools), entries or {}, RunDefaults(**defaults))
    )


def test_a_complete_run_is_accepted_with_the_installations_defaults() -> None:
    it = decide({}, agent())
    assert isinstance(it, Accepted)
    assert (it.pool, it.max_takeovers, it.priority) == ("default", 5, 0)
    assert it.options.active_deadline_seconds == 1800
    assert it.options.max_attempts == 1
    assert it.queue_deadline_seconds is None


@pytest.mark.parametrize(
    ("run", "of_agent", "default", "wanted"),
    [
        (3, 4, 5, 3),
        (None, 4, 5, 4),
        (None, None, 5, 5),
        (0, 4, 5, 0),
        (None, 0, 5, 0),
    ],
)
def test_the_run_wins_over_its_agent_and_that_over_the_installation(
    run: int | None, of_agent: int | None, default: int, wanted: int
) -> None:
    spec = {} if run is None else {"maxTakeovers": run}
    known = agent(runDefaults={} if of_agent is None else {"maxTakeovers": of_agent})
    it = decide(spec, known, max_takeovers=default)
    assert isinstance(it, Accepted)
    assert it.max_takeovers == wanted


def test_every_limit_is_resolved() -> None:
    limits = {
        "queueDeadlineSeconds": 60,
        "activeDeadlineSeconds": 70,
        "maxAttempts": 3,
        "retryBackoffSeconds": 20,
        "maxRetryBackoffSeconds": 40,
        "budget": {"maxTotalTokens": 1000},
    }
    spec = {"budget": {"maxCostMicroUSD": 5}, "concurrencyKey": "k", "idempotencyKey": "i"}
    it = decide({**spec, "priority": 7}, agent(runDefaults=limits))
    assert isinstance(it, Accepted)
    assert it.queue_deadline_seconds == 60
    assert msgspec.to_builtins(it.options) == {
        "active_deadline_seconds": 70.0,
        "max_attempts": 3,
        "retry_backoff_seconds": 20.0,
        "max_retry_backoff_seconds": 40.0,
        "max_total_tokens": 1000,
        "max_cost_micro": 5,
    }
    assert (it.concurrency_key, it.idempotency_key, it.priority) == ("k", "i", 7)


def test_a_backoff_is_never_above_its_ceiling() -> None:
    it = decide({"retryBackoffSeconds": 900, "maxAttempts": 2}, agent())
    assert isinstance(it, Accepted)
    assert it.options.max_retry_backoff_seconds == 900


@pytest.mark.parametrize(
    ("spec", "of_agent", "pools", "wanted"),
    [
        ({"workerPoolRef": {"name": "mine"}}, {}, ("mine",), "mine"),
        ({}, {"workerPoolRef": {"name": "theirs"}}, ("theirs",), "theirs"),
        ({}, {}, ("default",), "default"),
    ],
)
def test_the_pool_is_resolved(
    spec: dict[str, Any], of_agent: dict[str, Any], pools: tuple[str, ...], wanted: str
) -> None:
    it = decide(spec, agent(runDefaults=of_agent), pools=pools)
    assert isinstance(it, Accepted)
    assert it.pool == wanted


@pytest.mark.parametrize(
    ("spec", "known", "pools", "reason", "message"),
    [
        ({}, None, (), WaitReason.AGENT_NOT_FOUND, "Agent support does not exist"),
        ({}, agent(entrypoint=""), (), WaitReason.AGENT_NOT_FOUND, "Agent support is not valid"),
        ({}, agent(), (), WaitReason.POOL_NOT_FOUND, "WorkerPool default does not exist"),
        ({}, agent(intake="Paused"), (), WaitReason.INTAKE_PAUSED, "takes in no new runs"),
        (
            {"input": {"configMapKeyRef": {"name": "m", "key": "k"}}},
            agent(),
            ("default",),
            WaitReason.INPUT_NOT_FOUND,
            "ConfigMap m has no key k",
        ),
    ],
)
def test_what_is_missing_is_waited_for(
    spec: dict[str, Any],
    known: KnownAgent | None,
    pools: tuple[str, ...],
    reason: WaitReason,
    message: str,
) -> None:
    it = decide(spec, known, pools=pools)
    assert isinstance(it, Waits)
    assert it.reason is reason
    assert message in it.message
    assert it.agent == "support"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"input": {"uri": "s3://x"}}, FailureReason.INVALID_SPEC),
        ({"concurrencyKey": "a\x00"}, FailureReason.INVALID_SPEC),
        ({"idempotencyKey": "\x00"}, FailureReason.INVALID_SPEC),
        ({"priority": "high"}, FailureReason.INVALID_SPEC),
        ({"input": {"text": "ü" * 40_000}}, FailureReason.TOO_LARGE),
    ],
    ids=["uri", "nul-key", "nul-idempotency", "type", "size"],
)
def test_what_can_never_run_is_refused(spec: dict[str, Any], reason: FailureReason) -> None:
    it = decide(spec, agent())
    assert isinstance(it, Refused)
    assert it.reason is reason


def test_a_refusal_does_not_wait_for_the_agent() -> None:
    assert isinstance(decide({"input": {"uri": "s3://x"}}, None), Refused)


def test_a_config_map_entry_becomes_the_input() -> None:
    spec = {"input": {"configMapKeyRef": {"name": "m", "key": "k"}}}
    it = decide(spec, agent(), entries={ConfigMapKey("m", "k"): "[1]"})
    assert isinstance(it, Accepted)
    assert bodies.unpack(it.body) == b"[1]"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (None, b"null"),
        ("", b'""'),
        ("7", b"7"),
        ('{"a": 1.50}', b'{"a": 1.50}'),
        ("hello", b'"hello"'),
        ("NaN", b'"NaN"'),
        ("[" * 3000, msgspec.json.encode("[" * 3000)),
        ("two\nlines", b'"two\\nlines"'),
    ],
)
def test_text_is_the_json_that_it_is_else_a_string(text: str | None, stored: bytes) -> None:
    assert bodies.unpack(input_bytes(text)) == stored


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(BadInput, match="Unicode"):
        input_bytes("\ud800")


def test_the_digest_names_the_content_not_the_order() -> None:
    one = agent(description="d", intake="Open")
    two = known_agent(
        Seen(
            "Agent",
            ObjectKey("ns", "support", "u"),
            9,
            "9",
            spec={"intake": "Open", "description": "d", "entrypoint": "a:b"},
        )
    )
    assert one.digest == two.digest
    assert one.digest != agent(description="e").digest
