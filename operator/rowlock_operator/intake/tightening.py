"""What an Agent says of its tools, as it is stored with each run; pure.

Only a worker has the code, so only it can tell whether a tool exists and what it declares:
it refuses the run at its start (`InvalidSpec`) rather than to leave out what the Agent asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowlock.options import ToolRule
from rowlock_operator.api.agent import AgentTool, SideEffects, ToolApproval

_CLASSES = {
    SideEffects.NONE: "none",
    SideEffects.IDEMPOTENT: "idempotent",
    SideEffects.NON_IDEMPOTENT: "non_idempotent",
}


def tool_rules(tools: Iterable[AgentTool]) -> tuple[ToolRule, ...]:
    """Return the rules of an Agent's tools."""
    return tuple(
        ToolRule(
            tool.name,
            side_effects=None if tool.side_effects is None else _CLASSES[tool.side_effects],
            always_ask=tool.approval is ToolApproval.ALWAYS,
        )
        for tool in tools
    )
