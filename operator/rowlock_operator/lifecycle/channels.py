"""What an operator talks through, opened at its start: the API server, PostgreSQL, the Lease."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields

from rowlock.store.connection import COMMAND_SECONDS, Connection
from rowlock_operator import metrics as m
from rowlock_operator.kube.client import KubeClient, Lane, Rates
from rowlock_operator.kube.credentials import Access
from rowlock_operator.lifecycle import startup
from rowlock_operator.lifecycle.election import Term
from rowlock_operator.lifecycle.elector import Elector
from rowlock_operator.lifecycle.lease_access import LeaseAccess, Place
from rowlock_operator.lifecycle.means import Connections
from rowlock_operator.settings import OperatorSettings

_PULSE_SECONDS = 5.0


def open_client(access: Access, settings: OperatorSettings, metrics: m.Metrics) -> KubeClient:
    """Return the client for all but the Lease; it opens as an async context manager."""
    rates = Rates(status=settings.status_writes_per_second, event=settings.events_per_second)
    return KubeClient(
        access, rates=rates, connections=settings.connections, observe=_counter(metrics)
    )


@asynccontextmanager
async def open_connections(settings: OperatorSettings) -> AsyncIterator[Connections]:
    """Open all connections to PostgreSQL, waiting for it as long as a start may take.

    Raises
    ------
    StartFailed, ConfigurationError
        It did not come in time, or refuses us.
    """
    opened: dict[str, Connection] = {}
    async with AsyncExitStack() as stack:
        for name in (part.name for part in fields(Connections)):
            if name == "traces" and not settings.traces:
                continue
            opened[name] = await _connect(settings, name)
            stack.push_async_callback(opened[name].close)
        yield Connections(**opened)


@asynccontextmanager
async def open_elector(
    access: Access, settings: OperatorSettings, metrics: m.Metrics, *, fit: Callable[[], bool]
) -> AsyncIterator[Elector | None]:
    """Open the elector; None without an election.

    Parameters
    ----------
    fit
        Tells whether this process could do a leader's work.
    """
    if not settings.election:
        yield None
        return
    place = Place(settings.lease_namespace or access.namespace, settings.lease_name)
    term = Term(settings.lease_seconds, settings.lease_renew_seconds, settings.lease_retry_seconds)
    async with KubeClient(
        access, connections=2, timeout=term.renew / 2, observe=_counter(metrics)
    ) as client:
        yield Elector(LeaseAccess(client, place), term=term, fit=fit, metrics=metrics)


async def _connect(settings: OperatorSettings, name: str) -> Connection:
    url = settings.database_url.get_secret_value()
    patience = _PULSE_SECONDS if name == "pulse" else COMMAND_SECONDS
    return await startup.patiently(
        "PostgreSQL",
        lambda: startup.open_connection(url, name, patience=patience),
        within=settings.start_timeout_seconds,
    )


def _counter(metrics: m.Metrics) -> Callable[[Lane, int], None]:
    return lambda lane, code: metrics.add(m.API_REQUESTS, lane.value, str(code))
