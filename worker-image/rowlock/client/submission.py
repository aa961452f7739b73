"""From what a caller asks to the row of a new run; every parameter is checked by its name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rowlock import options as run_options
from rowlock.agents.codec import encode_plain
from rowlock.client.known import Defaults, Known
from rowlock.errors import InvalidInput, InvalidRequest, TooLarge
from rowlock.options import RunOptions
from rowlock.store.bodies import pack
from rowlock.store.types import NewRun, PoolId

#: Largest input from code, as JSON.
MAX_INPUT_BYTES: Final = 1024 * 1024
_MAX_KEY_LENGTH: Final = 128
_PRIORITIES: Final = (-1000, 1000)
_DEFAULT_TAKEOVERS: Final = 5
_LONGEST_QUEUE: Final = 2_592_000.0
_LONGEST_ACTIVE: Final = 604_800.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller says of a run beside its input; None takes the agent's default."""

    priority: int = 0
    queue_deadline: float | None = None
    active_deadline: float | None = None
    max_attempts: int | None = None
    max_takeovers: int | None = None

    def checked(self) -> Limits:
        """Return itself.

        Raises
        ------
        InvalidRequest
            A value is out of its bounds.
        """
        check_whole("priority", self.priority, *_PRIORITIES)
        _seconds("queue_deadline", self.queue_deadline, _LONGEST_QUEUE)
        _seconds("active_deadline", self.active_deadline, _LONGEST_ACTIVE)
        check_whole("max_attempts", self.max_attempts, 1, 20)
        check_whole("max_takeovers", self.max_takeovers, 0, 100)
        return self


@dataclass(frozen=True, slots=True)
class Template:
    """What all runs of one call have in common."""

    known: Known
    pool: PoolId
    options: bytes
    priority: int
    max_takeovers: int
    queue_deadline: float | None

    def run(
        self, value: Any, *, key: str | None, idempotency_key: str | None, field: str = "input"
    ) -> NewRun:
        """Return the row of a run.

        Raises
        ------
        InvalidInput
            `value` does not fit the agent's type, or is no data.
        TooLarge
            `value` is over 1 MiB.
        InvalidRequest
            A key makes no sense.
        """
        return NewRun(
            agent_id=self.known.agent_id,
            revision_id=self.known.revision_id,
            pool_id=self.pool,
            input=input_body(self.known, value, field=field),
            options=self.options,
            key=check_key("key", key),
            priority=self.priority,
            max_takeovers=self.max_takeovers,
            queue_deadline_seconds=self.queue_deadline,
            idempotency_key=check_key("idempotency_key", idempotency_key),
        )


def template(known: Known, pool: PoolId, limits: Limits) -> Template:
    """Return what runs of `known` have in common: the call first, then the agent's defaults."""
    agent = known.defaults
    return Template(
        known,
        pool,
        options=run_options.encode(_options(limits, agent)),
        priority=limits.priority,
        max_takeovers=_first(limits.max_takeovers, agent.max_takeovers, _DEFAULT_TAKEOVERS),
        queue_deadline=_first(limits.queue_deadline, agent.queue_deadline_seconds, None),
    )


def input_body(known: Known, value: Any, *, field: str = "input") -> bytes:
    """Return an input as stored, after the check that the worker would make."""
    try:
        body = encode_plain(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{field}: cannot be written as JSON: {error}") from error
    if len(body) > MAX_INPUT_BYTES:
        raise TooLarge(f"{field}: {len(body)} bytes, at most {MAX_INPUT_BYTES} are allowed")
    if known.check is not None:
        try:
            known.check(msgspec.json.decode(body))
        except InvalidInput as error:
            raise InvalidInput(f"{field}: {error}") from error
    return pack(body)


def check_key(field: str, key: object) -> str | None:
    """Return a key as it is.

    Raises
    ------
    InvalidRequest
        It is no text of 1 to 128 characters.
    """
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= _MAX_KEY_LENGTH:
        raise InvalidRequest(f"{field}: must be text of 1 to {_MAX_KEY_LENGTH} characters")
    if "\0" in key or not _is_unicode(key):
        raise InvalidRequest(f"{field}: holds characters that PostgreSQL cannot store")
    return key


def _options(limits: Limits, agent: Defaults) -> RunOptions:
    plain = RunOptions()
    backoff = _first(agent.retry_backoff_seconds, plain.retry_backoff_seconds)
    ceiling = _first(agent.max_retry_backoff_seconds, plain.max_retry_backoff_seconds)
    budget = agent.budget or {}
    return RunOptions(
        active_deadline_seconds=_first(
            limits.active_deadline, agent.active_deadline_seconds, plain.active_deadline_seconds
        ),
        max_attempts=_first(limits.max_attempts, agent.max_attempts, plain.max_attempts),
        retry_backoff_seconds=backoff,
        max_retry_backoff_seconds=max(backoff, ceiling),
        max_total_tokens=budget.get("maxTotalTokens"),
        max_cost_micro=budget.get("maxCostMicroUSD"),
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def check_whole(field: str, value: object, low: int, high: int) -> None:
    """Refuse what is neither None nor a whole number within bounds.

    Raises
    ------
    InvalidRequest
        With the field's name.
    """
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequest(f"{field}: must be a whole number from {low} to {high}, not {value!r}")


def _seconds(field: str, value: object, high: float) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= high:  # type: ignore[operator, arg-type]
        raise InvalidRequest(f"{field}: must be seconds above 0 and up to {high:g}, not {value!r}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
