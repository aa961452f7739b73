"""Which agent a run is for: one registered before, by its name, or an object, registered now.

An object also knows its types, so what does not fit is refused before anything is written.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import msgspec

from rowlock.agents.protocol import Agent
from rowlock.engine.loader import find_agent
from rowlock.errors import InvalidRequest, UnknownAgent
from rowlock.store import intake, reading
from rowlock.store.caps import Caps
from rowlock.store.connection import Connection
from rowlock.store.types import AgentId, RevisionId

_DIGEST_LENGTH: Final = 32


class Defaults(msgspec.Struct, frozen=True, rename="camel"):
    """What an Agent resource says about its runs."""

    worker_pool_ref: dict[str, str] | None = None
    queue_deadline_seconds: float | None = None
    active_deadline_seconds: float | None = None
    max_attempts: int | None = None
    max_takeovers: int | None = None
    retry_backoff_seconds: float | None = None
    max_retry_backoff_seconds: float | None = None
    budget: dict[str, int] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    run_defaults: Defaults | None = None
    intake: str = "Open"


@dataclass(frozen=True, slots=True)
class Known:
    """An agent that runs can be started of.

    Parameters
    ----------
    check
        Refuses an input that does not fit; None where its type is unknown.
    read
        Returns a result from its JSON.
    """

    name: str
    agent_id: AgentId
    revision_id: RevisionId
    check: Callable[[Any], Any] | None
    read: Callable[[bytes], Any]
    defaults: Defaults


class Directory:
    """Finds and registers agents; objects are looked up once."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        # The object is kept with what was found: its id would be given to another one.
        self._objects: dict[int, tuple[Agent, Known]] = {}

    async def find(self, conn: Connection, agent: str | Agent) -> Known:
        """Return the agent of a name, of "module:attribute", or of an object.

        Raises
        ------
        UnknownAgent
            None of that name is registered.
        AgentLoadError
            The entry point cannot be imported.
        InvalidRequest
            It is no agent, or no worker could import it.
        """
        if isinstance(agent, str) and ":" not in agent:
            return await self._named(conn, agent)
        found = find_agent(agent) if isinstance(agent, str) else agent
        kept = self._objects.get(id(found))
        if kept is None:
            entrypoint = agent if isinstance(agent, str) else entrypoint_of(found)
            known = await self._register(conn, found, entrypoint)
            kept = self._objects[id(found)] = (found, known)
        return kept[1]

    async def cap(self, conn: Connection, agent: str | Agent, caps: Caps) -> None:
        """Give an agent caps; an object is registered if it is new.

        Raises
        ------
        UnknownAgent, AgentLoadError, InvalidRequest
            There is no such agent.
        """
        named = isinstance(agent, str) and ":" not in agent
        name = str(agent) if named else (await self.find(conn, agent)).name
        namespace = self._namespace
        if not await intake.limit_agent(conn, namespace=namespace, name=name, limits=caps):
            raise UnknownAgent(await self._unknown(conn, name))

    async def _named(self, conn: Connection, name: str) -> Known:
        found = await reading.registered(conn, namespace=self._namespace, name=name)
        if found is None or found.revision_id is None or found.spec is None:
            raise UnknownAgent(await self._unknown(conn, name))
        spec = _read_spec(found.spec)
        if spec.intake == "Paused":
            raise InvalidRequest(f"agent: {name!r} takes in no new runs (its intake is Paused)")
        defaults = spec.run_defaults or Defaults()
        read = msgspec.json.decode
        return Known(name, found.agent_id, found.revision_id, None, read, defaults)

    async def _unknown(self, conn: Connection, name: str) -> str:
        names = await reading.agent_names(conn, namespace=self._namespace)
        there = f"those known are {', '.join(names)}" if names else "none is registered yet"
        where = f" in namespace {self._namespace!r}" if self._namespace else ""
        return (
            f"agent: there is no {name!r}{where}; {there}. "
            "Give the agent itself, or 'module:attribute', to register it."
        )

    async def _register(self, conn: Connection, agent: Agent, entrypoint: str) -> Known:
        spec = msgspec.json.encode({"entrypoint": entrypoint}, order="deterministic")
        digest = hashlib.sha256(spec).hexdigest()[:_DIGEST_LENGTH]
        known = await reading.registered(conn, namespace=self._namespace, name=agent.name)
        agent_id, revision_id = await intake.ensure_revision(
            conn,
            agent=known.agent_id if known else None,
            namespace=self._namespace,
            name=agent.name,
            entrypoint=entrypoint,
            spec=spec,
            digest=digest,
        )
        read = getattr(agent, "read_result", msgspec.json.decode)
        return Known(agent.name, agent_id, revision_id, agent.check_input, read, Defaults())


def entrypoint_of(agent: object) -> str:
    """Return "module:attribute" under which a worker can import `agent`.

    Raises
    ------
    InvalidRequest
        It is no agent, or stands in no imported module but the program itself.
    """
    if not callable(getattr(agent, "execute", None)):
        kind = type(agent).__name__
        raise InvalidRequest(
            f"agent: a {kind} is no agent: give a name, 'module:attribute', "
            "a ChatAgent or a function with @agent"
        )
    places = _places(agent)
    if not places:
        raise InvalidRequest(
            f"agent: {getattr(agent, 'name', agent)!r} stands in no module that a worker could "
            "import: define it at the top of a module of its own, not in the program that starts it"
        )
    own = getattr(agent, "__module__", "")
    module, attribute = min(places, key=lambda place: (place[0] != own, place[0].count("."), place))
    return f"{module}:{attribute}"


def _places(agent: object) -> list[tuple[str, str]]:
    found = []
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or name.startswith("_"):
            continue
        attributes = list(vars(module).items())
        found += [(name, attribute) for attribute, value in attributes if value is agent]
    return found


def _read_spec(stored: bytes) -> _Spec:
    try:
        return msgspec.json.decode(stored, type=_Spec)
    except msgspec.MsgspecError:
        return _Spec()  # written by whoever registered it: nothing here has to be in it
