"""Whether the nodes of doubtful pods are lost: asked for one by one, and only then.

Nodes are not watched: each of them changes its status every few seconds or minutes, and of a
thousand nodes none is of interest on an ordinary day.
"""

from __future__ import annotations

import structlog

from rowlock.clock import Clock, SystemClock
from rowlock_operator.kube.client import KubeClient
from rowlock_operator.kube.errors import Denied, NotFound
from rowlock_operator.kube.resources import NODES
from rowlock_operator.pods.roster import PodSeen
from rowlock_operator.pods.verdicts import is_node_lost

log = structlog.get_logger(__name__)

_FRESH_SECONDS = 2.0


class Nodes:
    """Remembers each answer for a moment: many pods share a node."""

    def __init__(self, client: KubeClient, *, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._answers: dict[str, tuple[float, bool | None]] = {}
        self._told = False

    async def lost(self, pod: PodSeen) -> bool:
        """Tell whether the pod's node is lost; where nodes may not be read, what the pod says.

        Raises
        ------
        KubeError
            The API server could not be asked.
        """
        now = self._clock.monotonic()
        self._answers = {n: it for n, it in self._answers.items() if now - it[0] < _FRESH_SECONDS}
        if pod.node not in self._answers:
            self._answers[pod.node] = (now, await self._ask(pod.node))
        answer = self._answers[pod.node][1]
        return pod.contradicted if answer is None else answer

    async def _ask(self, name: str) -> bool | None:
        try:
            return is_node_lost(await self._client.get(NODES.path(name=name)))
        except NotFound:
            return is_node_lost(None)
        except Denied as error:
            if not self._told:
                log.info("Nodes may not be read: pods alone tell of a lost one", error=str(error))
            self._told = True
            return None
