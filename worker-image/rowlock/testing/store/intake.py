"""What comes in: pools, agents, runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta

from rowlock.states import ChangeKind, Place
from rowlock.store.bodies import unpack
from rowlock.store.caps import Caps
from rowlock.store.types import AgentId, Enqueued, NewRun, PoolId, RevisionId, RunId, Submission
from rowlock.testing.store import caps, lines
from rowlock.testing.store.tables import Agent, Live, Revision, Run, Tables


def ensure_pool(tables: Tables, namespace: str, name: str) -> PoolId:
    """Return the id of a pool, made now if it is new."""
    if (namespace, name) not in tables.pools:
        tables.pools[namespace, name] = PoolId(tables.number("pool"))
    return tables.pools[namespace, name]


def ensure_agent(
    tables: Tables, agent: Agent, revision: tuple[str, str, bytes]
) -> tuple[AgentId, RevisionId]:
    """Return the ids of an agent and of its revision (digest, entry point, spec)."""
    agent_id = _agent_id(tables, agent)
    caps.set_caps(tables, agent_id, agent.caps)
    digest, entrypoint, spec = revision
    for revision_id, known in tables.revisions.items():
        if (known.agent_id, known.digest) == (agent_id, digest):
            return agent_id, revision_id
    made = RevisionId(tables.number("agent revision"))
    tables.revisions[made] = Revision(agent_id, digest, entrypoint, spec)
    return agent_id, made


def enqueue(tables: Tables, runs: Sequence[NewRun]) -> list[Enqueued]:
    """Accept runs, each once, and say for each what became of it."""
    answers: list[Enqueued] = []
    created: list[Live] = []
    for new in runs:
        known = _known(tables, new)
        if known is None:
            created.append(_accept(tables, new))
            known = Enqueued(created[-1].run_id, Submission.CREATED)
        answers.append(known)
    lines.queue_up(tables, created)
    for run in created:
        tables.change(run, ChangeKind.QUEUED)
    for agent in dict.fromkeys(run.agent_id for run in created if run.place is Place.BACKLOG):
        caps.promote(tables, agent)
    return answers


def _agent_id(tables: Tables, agent: Agent) -> AgentId:
    for agent_id, known in tables.agents.items():
        if (known.namespace, known.name) == (agent.namespace, agent.name):
            return agent_id
    made = AgentId(tables.number("agent"))
    tables.agents[made] = Agent(agent.namespace, agent.name, Caps())
    return made


def _known(tables: Tables, new: NewRun) -> Enqueued | None:
    """Return the answer for a run that stands in the store already."""
    by_object = tables.objects.get((new.cluster or "", new.uid)) if new.uid is not None else None
    if by_object is not None:
        return Enqueued(by_object, Submission.EXISTS)
    if new.idempotency_key is None:
        return None
    by_key = tables.keys.get((new.agent_id, new.idempotency_key))
    if by_key is None:
        return None
    same = new.uid is None and tables.runs[by_key].input_sha == _sha(new)
    outcome = Submission.EXISTS if same else Submission.DUPLICATE_KEY
    return Enqueued(by_key, outcome, _holder(tables, by_key))


def _holder(tables: Tables, run_id: RunId) -> str:
    new = tables.runs[run_id].new
    return f"{new.namespace}/{new.name}" if new.uid is not None else ""


def _accept(tables: Tables, new: NewRun) -> Live:
    run_id, now = RunId(tables.number("run")), tables.now()
    tables.runs[run_id] = Run(new, now, _sha(new))
    if new.idempotency_key is not None:
        tables.keys[new.agent_id, new.idempotency_key] = run_id
    if new.uid is not None:
        tables.objects[new.cluster or "", new.uid] = run_id
    run = Live(
        run_id=run_id,
        pool_id=new.pool_id,
        agent_id=new.agent_id,
        revision_id=new.revision_id,
        key=new.key or None,
        priority=new.priority,
        max_takeovers=new.max_takeovers,
        linked=new.uid is not None,
        place=Place.READY,
        vft=0.0,
        ready_at=now,
        pinned=new.pinned,
    )
    if new.queue_deadline_seconds is not None:
        run.queue_deadline = now + timedelta(seconds=new.queue_deadline_seconds)
    return run


def _sha(new: NewRun) -> bytes | None:
    if new.idempotency_key is None:
        return None
    return hashlib.sha256(unpack(new.input)).digest()
