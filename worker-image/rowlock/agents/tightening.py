"""Tools that an Agent object makes stricter than the code: never looser, and never a wrong name.

Whoever writes the object relies on it: an entry that would do nothing, because no tool has its name
or because the code is stricter than it, ends the run where the worker first sees that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from rowlock.agents.retry import SIDE_EFFECTS, Policy, SideEffects
from rowlock.errors import AgentSpecRefused
from rowlock.options import ToolRule

#: What the object calls them.
_SPELLED = dict(zip(SIDE_EFFECTS, ("None", "Idempotent", "NonIdempotent"), strict=True))


def check_names(rules: Iterable[ToolRule], known: Collection[str], *, agent: str) -> None:
    """Refuse rules about tools that are not there.

    Raises
    ------
    AgentSpecRefused
        The first of them is named, and what there is.
    """
    for rule in rules:
        if rule.name not in known:
            tools = ", ".join(sorted(known)) or "none"
            raise AgentSpecRefused(
                f"The Agent's spec.tools[{rule.name}]: the code of agent {agent!r} has no tool "
                f"of that name; it has: {tools}."
            )


def stricter(policy: Policy, rule: ToolRule | None) -> Policy:
    """Return `policy` with the class of side effects that `rule` asks for.

    Raises
    ------
    AgentSpecRefused
        That would be a weaker one.
    """
    if rule is None or rule.side_effects is None:
        return policy
    strength = SIDE_EFFECTS.index
    if rule.side_effects not in SIDE_EFFECTS:
        raise AgentSpecRefused(
            f"The Agent's spec.tools[{rule.name}].sideEffects: this worker does not know "
            f"{rule.side_effects!r}."
        )
    wanted: SideEffects = rule.side_effects
    if strength(wanted) < strength(policy.side_effects):
        raise AgentSpecRefused(
            f"The Agent's spec.tools[{rule.name}].sideEffects: {_SPELLED[wanted]} is weaker than "
            f"{_SPELLED[policy.side_effects]}, which the code declares; an Agent can only make "
            "a tool stricter."
        )
    return replace(policy, side_effects=wanted)
