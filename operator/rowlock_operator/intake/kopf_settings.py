"""kopf's settings and its two storages, for watching without a trace on any object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import kopf

from rowlock_operator.api import names


def kopf_settings(*, silence: float) -> kopf.OperatorSettings:
    """Return settings for kinds that are only watched.

    Scanning is off: fewer rights, fewer streams; so the CRDs must exist before the start.
    The timeouts make a frozen stream end by itself.

    Parameters
    ----------
    silence
        Seconds after which a watch that says nothing is opened anew.
    """
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.queueing.idle_timeout = 0.5
    settings.watching.chunk_size = 500
    settings.watching.inactivity_timeout = silence
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    # An API server that restarts answers 403 and 5xx for seconds; giving up ends the process.
    settings.networking.error_backoffs = (0.2, 0.5, 1, 1, 2, 2, 4, 8, 16, 16, 16)
    # kopf takes a finalizer of this name off every object it sees: it must never be one of ours.
    settings.persistence.finalizer = f"{names.GROUP}/kopf-unused"
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    return settings


class _NoDiffBase(kopf.DiffBaseStorage):
    """Remembers nothing: kopf's own makes two deep copies for each event, a fifth of its CPU."""

    def build(self, *, body: Any, extra_fields: Iterable[Any] | None = None) -> Any:  # noqa: ARG002
        return {}

    def fetch(self, *, body: Any) -> Any:  # noqa: ARG002
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Store nothing."""


class _NoProgress(kopf.ProgressStorage):
    """Remembers nothing: `on.event` handlers have no progress."""

    def fetch(self, *, key: Any, body: Any) -> Any:  # noqa: ARG002
        return None

    def store(self, *, key: Any, record: Any, body: Any, patch: Any) -> None:
        """Store nothing."""

    def purge(self, *, key: Any, body: Any, patch: Any) -> None:
        """Store nothing."""

    def touch(self, *, body: Any, patch: Any, value: Any) -> None:
        """Store nothing."""

    def clear(self, *, essence: Any) -> Any:
        return essence
