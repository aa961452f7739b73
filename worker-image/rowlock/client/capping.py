"""How many runs of an agent may work at once, said by a client."""

from __future__ import annotations

from typing import Final

from rowlock.agents.protocol import Agent
from rowlock.client.connected import Connected
from rowlock.client.submission import check_whole
from rowlock.store.caps import Caps

_MOST_RUNNING: Final = 2**31 - 1
_MOST_STARTS: Final = 100_000


class Capping(Connected):
    """A client that says how many runs of an agent may work at once."""

    async def set_caps(
        self,
        agent: str | Agent,
        *,
        max_running: int | None = None,
        max_running_per_key: int | None = None,
        starts_per_minute_per_key: int | None = None,
    ) -> None:
        """Give an agent these caps in place of those that it has; they hold when this returns.

        Runs over a cap wait, and none is refused. Those that are running go on.
        The operator gives an agent of an Agent resource the caps that are written there, again
        and again, so say them there.

        Parameters
        ----------
        agent
            The name of one that is registered; or an agent, or its "module:attribute":
            it is registered if it is new.
        max_running
            Runs of this agent at once; None for no limit, as with the others.
        max_running_per_key
            Runs with the same `key` at once.
        starts_per_minute_per_key
            Runs with the same `key` that may start within any 60 seconds.

        Raises
        ------
        UnknownAgent
            With the names of those that are there.
        InvalidRequest
            With the parameter that makes no sense. Nothing was written.
        """
        check_whole("max_running", max_running, 1, _MOST_RUNNING)
        check_whole("max_running_per_key", max_running_per_key, 1, _MOST_RUNNING)
        check_whole("starts_per_minute_per_key", starts_per_minute_per_key, 1, _MOST_STARTS)
        caps = Caps(max_running, max_running_per_key, starts_per_minute_per_key)
        await self._starter.cap(self._store, agent, caps)
