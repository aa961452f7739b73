"""An Agent as intake needs it: its spec, and the digest that names its revision."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pydantic import ValidationError

from rowlock_operator.api.agent import AgentSpec, Intake, VersionPolicy
from rowlock_operator.intake.seen import Seen
from rowlock_operator.kube.resources import ObjectKey

_DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """One Agent.

    Parameters
    ----------
    spec
        None if it cannot be read; `problem` says why.
    stored
        The spec as canonical JSON, as it goes into `agent_revision.spec`.
    digest
        Hash of `stored`: a run keeps the revision that it was accepted with.
    """

    key: ObjectKey
    generation: int
    version: str
    digest: str
    spec: AgentSpec | None = field(repr=False)
    stored: bytes = field(repr=False)
    status: Mapping[str, Any] = field(repr=False)
    problem: str = ""

    @property
    def paused(self) -> bool:
        """Tell whether new runs have to wait."""
        return self.spec is not None and self.spec.intake is Intake.PAUSED

    @property
    def pinned(self) -> bool:
        """Tell whether its runs stay with the build that begins them."""
        return self.spec is not None and self.spec.version_policy is VersionPolicy.PINNED

    def pool(self, default: str) -> str:
        """Return the WorkerPool of runs that name none."""
        defaults = self.spec.run_defaults if self.spec else None
        reference = defaults.worker_pool_ref if defaults else None
        return reference.name if reference else default


def known_agent(seen: Seen) -> KnownAgent:
    """Return the Agent that was seen."""
    stored = msgspec.json.encode(seen.spec, order="deterministic")
    spec, problem = _parsed(seen)
    return KnownAgent(
        key=seen.key,
        generation=seen.generation,
        version=seen.version,
        digest=hashlib.sha256(stored).hexdigest()[:_DIGEST_LENGTH],
        spec=spec,
        stored=stored,
        status=seen.status,
        problem=problem,
    )


def _parsed(seen: Seen) -> tuple[AgentSpec | None, str]:
    try:
        return AgentSpec.model_validate(seen.spec), ""
    except ValidationError as error:
        return None, problem_of(error)


def problem_of(error: ValidationError) -> str:
    """Return the first thing that a model does not like, without the value at fault."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'spec'}: {first['msg']}"
