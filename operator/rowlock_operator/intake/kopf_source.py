"""kopf as a source of objects: watching only, in a thread and a loop of its own.

Why so little of kopf: its change-detecting handlers write annotations and finalizers on every
object (one to three requests a run) and its timers hold a task per object. `on.event` handlers
write nothing. Why a thread: a hiccup of kopf must not hold up the mirror, nor the reverse.
What kopf cannot promise (objects deleted while a watch was away, a watcher task that dies while
the process lives) is made good by the sweep and by `health`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kopf
import structlog
import uvloop

from rowlock_operator.api import names
from rowlock_operator.intake.echoes import EchoFilter
from rowlock_operator.intake.kopf_settings import kopf_settings
from rowlock_operator.intake.seen import Seen, seen_from
from rowlock_operator.intake.source import SourceHealth
from rowlock_operator.kube.credentials import Access
from rowlock_operator.kube.session import open_session

log = structlog.get_logger(__name__)

KINDS = {
    names.AGENT_RUNS: "AgentRun",
    names.AGENTS: "Agent",
    names.WORKER_POOLS: "WorkerPool",
    names.AGENT_RUN_APPROVALS: "AgentRunApproval",
    names.AGENT_RUN_BATCHES: "AgentRunBatch",
}
_STOP_SECONDS = 10.0
# Of a type that kopf does not export; it tells peers apart, and there are none.
_IDENTITY: Any = "rowlock"


class KopfSource:
    """Watches our kinds with kopf.

    Parameters
    ----------
    namespaces
        Which to watch; empty for all.
    silence
        Seconds after which a watch that says nothing, not even a bookmark, is opened anew.
    count
        Called with (kind, echo) for each object, in kopf's thread.
    """

    def __init__(
        self,
        access: Access,
        *,
        namespaces: Sequence[str] = (),
        silence: float = 70,
        count: Callable[[str, bool], None] | None = None,
    ) -> None:
        self._access = access
        self._namespaces = tuple(namespaces)
        self._silence = silence
        self._count = count or (lambda _kind, _echo: None)
        self._filter = EchoFilter()
        self._deliver: Callable[[Seen], None] = lambda _seen: None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._beat: tuple[float, int] = (time.monotonic(), 0)
        self._event_at: float | None = None
        self._why: str | None = None
        self._end: asyncio.Future[str] | None = None
        self._our_loop: asyncio.AbstractEventLoop | None = None

    def start(self, deliver: Callable[[Seen], None]) -> None:
        """Begin watching; `deliver` is called in kopf's thread."""
        self._deliver = deliver
        self._our_loop = asyncio.get_running_loop()
        self._end = self._our_loop.create_future()
        self._thread.start()

    async def stop(self) -> None:
        """End the watches and the thread."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    async def ended(self) -> str:
        """Wait until kopf ends, and return why."""
        if self._end is None:
            raise RuntimeError("start the source first")
        return await asyncio.shield(self._end)

    def health(self) -> SourceHealth:
        """Say whether every watch is there: kopf's own liveness check does not look at that."""
        beat_at, watchers = self._beat
        return SourceHealth(
            watchers=watchers,
            expected=len(KINDS) * max(len(self._namespaces), 1),
            beat_age=time.monotonic() - beat_at,
            event_at=self._event_at,
            ended=self._why,
        )

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._operate())
            why = "kopf stopped"
        except BaseException as error:
            log.error("The watch ended", exc_info=error)
            why = f"kopf ended: {type(error).__name__}: {error}"
        self._why = why
        if self._our_loop and not self._our_loop.is_closed():
            self._our_loop.call_soon_threadsafe(self._tell, why)

    def _tell(self, why: str) -> None:
        if self._end and not self._end.done():
            self._end.set_result(why)

    async def _operate(self) -> None:
        # Begun before kopf, which at its end cancels every task begun after it.
        beating = asyncio.create_task(self._keep_beating())
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=kopf_settings(silence=self._silence),
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
                standalone=True,
                # kopf would look up the name of its user, and in a container that has none.
                identity=_IDENTITY,
                stop_flag=self._stop,
            )
        finally:
            beating.cancel()
            # kopf waits for the flag in a thread of an executor, which the runner would wait for.
            self._stop.set()

    async def _keep_beating(self) -> None:
        while True:
            watchers = sum(
                task.get_name().startswith("watcher for ") for task in asyncio.all_tasks()
            )
            self._beat = (time.monotonic(), watchers)
            await asyncio.sleep(1)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for plural, kind in KINDS.items():
            kopf.on.event(
                names.GROUP, names.VERSION, plural, id=f"see-{plural}", registry=registry
            )(self._handler(kind))
        return registry

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        # One stream per kind and namespace, and a few requests for discovery and lists.
        streams = len(KINDS) * max(len(self._namespaces), 1)
        session = open_session(self._access, connections=streams + 8)
        return kopf.AiohttpSession(
            server=self._access.server,
            aiohttp_session=session,
            default_namespace=self._access.namespace,
        )

    def _handler(self, kind: str) -> Callable[..., Any]:
        async def see(event: Any, **_: Any) -> None:
            # Whatever is raised here kopf logs and forgets, so nothing may be.
            self._see(event, kind)

        return see

    def _see(self, event: Any, kind: str) -> None:
        self._event_at = time.monotonic()
        seen = seen_from(event["object"], kind, gone=event["type"] == "DELETED")
        news = self._filter.passes(seen)
        self._count(kind, not news)
        if news:
            self._deliver(seen)


def quiet_kopf() -> None:
    """Keep kopf's log to what a person must know: it logs a line for each event otherwise."""
    for name in ("kopf", "kopf.objects", "kopf.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
