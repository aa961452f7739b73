"""The side that a command's flags choose."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from rowlock import logs
from rowlock.cluster.side import ClusterSide
from rowlock.commands.route import Flags, ToStore, route
from rowlock.commands.sides import Side
from rowlock.commands.store_side import StoreSide
from rowlock.terminal import one_line_errors

T = TypeVar("T")

#: The exit code after Ctrl-C.
INTERRUPTED: Final = 130


def side(flags: Flags) -> Side:
    """Return the side.

    Raises
    ------
    InvalidRequest, ConfigurationError
        Both ways are asked for, or neither is.
    """
    logs.configure(level="ERROR")  # the client logs that it waits for the database
    way = route(flags)
    if isinstance(way, ToStore):
        namespace = way.namespace or os.environ.get("ROWLOCK_NAMESPACE", "")
        return StoreSide(way.url, namespace, way.namespace)
    return ClusterSide(way.kubectl)


def asked(flags: Flags, ask: Callable[[Side], Coroutine[Any, Any, T]]) -> T:
    """Return what the side answers; its errors end the command with one line."""
    with one_line_errors():
        return asyncio.run(ask(side(flags)))
