"""Which AgentRuns wait for something that does not exist yet, and for what."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.states import WaitReason
from rowlock_operator.kube.resources import AGENTS, ObjectKey

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """One AgentRun that could not be taken in."""

    key: ObjectKey
    reason: WaitReason
    agent: str
    pool: str


class Waiting:
    """An index of waiting runs: names only, the objects stay on the API server.

    Beyond `most` runs it forgets which, and answers "perhaps".
    """

    def __init__(self, most: int = _MOST) -> None:
        self._runs: dict[str, WaitingRun] = {}
        self._most = most
        self._overflowed = False

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: WaitingRun) -> None:
        """Remember that the run waits."""
        if len(self._runs) < self._most or run.key.uid in self._runs:
            self._runs[run.key.uid] = run
        else:
            self._overflowed = True

    def discard(self, uid: str) -> None:
        """Forget the run: it was taken in, or is gone."""
        self._runs.pop(uid, None)

    def may_wait(self, kind: str, namespace: str, name: str) -> bool:
        """Tell whether a run may wait for that Agent or WorkerPool."""
        return self._overflowed or any(
            run.key.namespace == namespace
            and name == (run.agent if kind == AGENTS.kind else run.pool)
            for run in self._runs.values()
        )

    def for_inputs(self) -> list[ObjectKey]:
        """Return the runs that wait for a ConfigMap: nothing tells us when one appears."""
        return [run.key for run in self._runs.values() if run.reason is WaitReason.INPUT_NOT_FOUND]
