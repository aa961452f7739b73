"""What `run.step` was asked for, put together from its call and from what is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rowlock.agents.blocking import Crossing, arguments_of, needs_executor
from rowlock.agents.identity import RESERVED_NAMES, canonical, digest
from rowlock.agents.located import locate
from rowlock.agents.protocol import Question
from rowlock.agents.retry import SIDE_EFFECTS, Policy, SideEffects, checked
from rowlock.agents.signature import Declared, StepFunction
from rowlock.agents.tightening import stricter
from rowlock.errors import AgentError
from rowlock.options import ToolRule

#: How an Agent object makes tools stricter, by their names.
Rules = Mapping[str, ToolRule]

_DEFAULT = Policy()


def policy_of(
    name: str,
    fn: Callable[..., Any],
    side_effects: SideEffects | None,
    *,
    retries: int | None,
    timeout: float | None,
    rules: Rules,
) -> Policy:
    """Return how a step is tried: as it says, else as the tool that it calls declares.

    Parameters
    ----------
    rules
        May make it stricter.

    Raises
    ------
    AgentError
        A run's own entries have that name, or the class of side effects is none.
    AgentDefinitionError
        A number makes no sense.
    AgentSpecRefused
        The Agent object would make the tool looser.
    """
    if name in RESERVED_NAMES:
        raise AgentError(
            f"A step cannot be called {name!r}, because history calls other entries so."
        )
    declared = fn.policy if isinstance(fn, Declared) else _DEFAULT
    if side_effects is None and retries is None and timeout is None:
        return stricter(declared, rule_of(fn, rules)) if rules else declared
    if side_effects is not None and side_effects not in SIDE_EFFECTS:
        raise AgentError(f"side_effects={side_effects!r} is not one of {', '.join(SIDE_EFFECTS)}.")
    policy = Policy(
        declared.side_effects if side_effects is None else side_effects,
        declared.retries if retries is None else retries,
        declared.timeout if timeout is None else timeout,
        declared.key_ttl,
    )
    return stricter(checked(policy, owner=f"Step {name!r}"), rule_of(fn, rules))


def rule_of(fn: Callable[..., Any], rules: Rules) -> ToolRule | None:
    """Return how the Agent object makes `fn` stricter, if that is a tool."""
    return rules.get(fn.name) if rules and isinstance(fn, Declared) else None


def blocking_of(fn: Callable[..., Any], given: bool | None) -> bool | None:
    """Return where it runs: as the step says, else as the tool that it calls declares."""
    return fn.blocking if given is None and isinstance(fn, Declared) else given


def crossing_of(
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    known: StepFunction,
    blocking: bool | None,
) -> Callable[[], Crossing] | None:
    """Return how the call reaches an executor; None if it is made here."""
    if known.is_async and not blocking:
        return None
    owner = f"Step {name!r}"
    if not needs_executor(is_async=known.is_async, blocking=blocking, owner=owner):
        return None
    location = locate(fn, owner=owner)
    cross = arguments_of(fn, known.takes_run)
    return lambda: Crossing(location, cross.dump(args), as_tool=False)


def question_of(
    fn: Callable[..., Any], key: str, args: tuple[Any, ...], *, rules: Rules
) -> Question | None:
    """Return what a person must answer first, if `fn` is a tool that says so, or its Agent does."""
    if not isinstance(fn, Declared) or fn.approval is None:
        return None
    rule = rule_of(fn, rules) if rules else None
    always = rule is not None and rule.always_ask
    if fn.approval.never and not always:
        return None
    return fn.approval.question(key, canonical(args), args, {}, always=always)


def digest_of(name: str, args: tuple[Any, ...]) -> str:
    """Return what stands for the arguments.

    Raises
    ------
    AgentError
        One is no data.
    """
    try:
        return digest(args)
    except (TypeError, ValueError, RecursionError) as error:
        raise AgentError(
            f"The arguments of step {name!r} must be data: {error}. "
            "Bind other things with functools.partial or a closure."
        ) from error
