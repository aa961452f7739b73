"""Does something to many objects at once, so that none of them suffers from another's failure."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import structlog

from rowlock_operator.kube.errors import KubeError, Throttled, Unreachable
from rowlock_operator.kube.putoff import PutOff

log = structlog.get_logger(__name__)
T = TypeVar("T")


async def apart(work: Mapping[str, Coroutine[Any, Any, T]], put_off: PutOff) -> dict[str, T]:
    """Do the work of each uid, and return what came of those that did not fail.

    One that the API server refuses, or that it always fails at, is put off alone.

    Raises
    ------
    KubeError
        All failed because the API server is away: nothing is put off, do it again.
    """
    answers = await asyncio.gather(*work.values(), return_exceptions=True)
    ends = dict(zip(work, answers, strict=True))
    failed = {uid: end for uid, end in ends.items() if isinstance(end, BaseException)}
    for error in failed.values():
        if not isinstance(error, KubeError):
            raise error
    away = [it for it in failed.values() if isinstance(it, (Unreachable, Throttled))]
    if away and len(away) == len(ends):
        raise away[0]
    for uid, error in failed.items():
        wait = put_off.failed(uid, at_least=getattr(error, "retry_after", 0))
        log.warning("An AgentRun is put off", uid=uid, error=str(error), wait=wait)
    return {uid: end for uid, end in ends.items() if not isinstance(end, BaseException)}
