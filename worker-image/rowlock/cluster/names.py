"""The kinds that commands read and write, and the names that objects may have."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from rowlock.errors import InvalidRequest

GROUP: Final = "rowlock.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"
AGENT_RUNS: Final = f"agentruns.{GROUP}"
AGENTS: Final = f"agents.{GROUP}"
WORKER_POOLS: Final = f"workerpools.{GROUP}"
APPROVALS: Final = f"agentrunapprovals.{GROUP}"

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST: Final = 63


def run_name(text: str, parameter: str = "RUN") -> str:
    """Return the name of an AgentRun, as somebody typed it.

    Raises
    ------
    InvalidRequest
        None can be called so.
    """
    if len(text) <= _LONGEST and _LABEL.fullmatch(text):
        return text
    raise InvalidRequest(
        f"{parameter}: {text[:80]!r} is no name of an AgentRun, which has up to 63 characters "
        "a-z, 0-9 and '-', as order-7; `rowlock list` shows those that are there"
    )


def keyed_name(agent: str, key: str) -> str:
    """Return the name that an Agent's run with this idempotency key has: the same each time."""
    digest = hashlib.sha256(f"{agent}\0{key}".encode()).hexdigest()[:16]
    return f"{agent[: _LONGEST - 17].rstrip('-.')}-{digest}".replace(".", "-")


def prefix(agent: str) -> str:
    """Return what the server makes a name of, by adding five characters."""
    return f"{agent[: _LONGEST - 6].rstrip('-.')}-".replace(".", "-")
