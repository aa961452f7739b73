"""How long the questions of a run stay open, and what silence means: Agent, then run; pure."""

from __future__ import annotations

import msgspec

from rowlock.options import RunOptions
from rowlock_operator.api.agent import AgentApproval, ApprovalTimeout
from rowlock_operator.api.agentrun import RunApproval


def with_silence(
    options: RunOptions, *, run: RunApproval | None, agent: AgentApproval | None
) -> RunOptions:
    """Return `options` with what run and Agent say about questions to people.

    The run's own time comes first. But where silence is a yes, which only the Agent can say, the
    run cannot make it come sooner: its author would approve it himself.
    """
    approves = agent is not None and agent.on_timeout is ApprovalTimeout.APPROVE
    given = [
        one.timeout_seconds
        for one in (run, agent)
        if one is not None and one.timeout_seconds is not None
    ]
    if not given:
        return options
    return msgspec.structs.replace(
        options,
        approval_timeout_seconds=max(given) if approves else given[0],
        silence_approves=approves,
    )
