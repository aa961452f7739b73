"""Runs from code: start them, wait for them, follow them, end them.

`Client` is for async code, `SyncClient` for all other code; both do the same.
"""

from rowlock.client.client import Client
from rowlock.client.handle import RunHandle
from rowlock.client.happenings import RunEvent
from rowlock.client.sync import SyncClient, SyncRunHandle
from rowlock.client.wishes import PendingApproval
from rowlock.store.reading import RunInfo

__all__ = [
    "Client",
    "PendingApproval",
    "RunEvent",
    "RunHandle",
    "RunInfo",
    "SyncClient",
    "SyncRunHandle",
]
