"""What may be asked of a run through its object: hold it, let it go on, end it, try again.

Each changes the AgentRun's spec, and then waits a moment for the operator to show what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from rowlock.client.wishes import PATIENCE_SECONDS
from rowlock.cluster.kubectl import Kubectl
from rowlock.cluster.names import AGENT_RUNS
from rowlock.cluster.objects import Object, holds, spec_of, status_of
from rowlock.cluster.watching import finished, states, unknown
from rowlock.commands.shapes import Answered
from rowlock.errors import ClusterError, ClusterRefuses, NotInCluster, WishRefused
from rowlock.states import ConditionType, Phase

_LONGEST_REASON: Final = 256


async def suspend(kubectl: Kubectl, run: str, *, by: str, reason: str | None) -> Answered:
    """Ask that a run is held until somebody continues it.

    Raises
    ------
    UnknownRun, WishRefused, ClusterError
        It is not there, has ended, or we may not.
    """
    now = await read(kubectl, run)
    if finished(now):
        raise WishRefused(f"run {run} has ended")
    wish = {"desiredState": "Suspend", "desiredStateReason": _because(by, reason)}
    await _change(kubectl, run, wish)
    end = await _until(kubectl, run, lambda it: _held(it) or finished(it))
    said = "suspended" if _held(end) else "asked: it is held at its next step boundary"
    if finished(end):
        raise WishRefused(f"run {run} has ended meanwhile")
    return Answered(run, "suspend", _held(end), said)


async def continue_(kubectl: Kubectl, run: str) -> Answered:
    """Let a held run go on.

    Raises
    ------
    UnknownRun, WishRefused, ClusterError
        It is not there, is not held by its AgentRun, or we may not.
    """
    now = await read(kubectl, run)
    if finished(now):
        raise WishRefused(f"run {run} has ended")
    if spec_of(now).get("desiredState") != "Suspend":
        where = " by its AgentRun, but in the database: continue it there" if _held(now) else ""
        raise WishRefused(f"run {run} is not suspended{where}")
    await _change(kubectl, run, {"desiredState": "Run", "desiredStateReason": None})
    end = await _until(kubectl, run, lambda it: not _held(it))
    done = bool(end) and not _held(end)
    said = "continues" if done else "asked: the operator has not let it go yet"
    return Answered(run, "continue", done, said)


async def cancel(kubectl: Kubectl, run: str, *, by: str, reason: str | None) -> Answered:
    """Ask for the end of a run.

    Raises
    ------
    UnknownRun, ClusterError
        It is not there, or we may not.
    """
    if not finished(await read(kubectl, run)):
        wish = {"desiredState": "Cancel", "desiredStateReason": _because(by, reason)}
        await _change(kubectl, run, wish)
        if not finished(await _until(kubectl, run, finished)):
            return Answered(run, "cancel", False, "asked: its worker is ending it")
    return Answered(run, "cancel", True, "ended")


async def retry(kubectl: Kubectl, run: str) -> Answered:
    """Ask for another attempt of a run that has ended, by raising its `spec.redrive` by one.

    Raises
    ------
    UnknownRun, WishRefused, ClusterError
        It is not there, has not ended, or we may not.
    """
    now = await read(kubectl, run)
    if not finished(now):
        raise WishRefused(f"run {run} has not ended: cancel it first, or wait")
    asked = spec_of(now).get("redrive") or 0
    if (status_of(now).get("redrive") or 0) >= asked:  # else somebody has asked just now
        asked += 1
        wish = {"redrive": asked, "desiredState": "Run", "desiredStateReason": None}
        await _change(kubectl, run, wish)
    end = await _until(kubectl, run, lambda it: (status_of(it).get("redrive") or 0) >= asked)
    if (status_of(end).get("redrive") or 0) < asked:
        return Answered(run, "retry", False, "asked: the operator has not queued it yet")
    attempt = status_of(end).get("attempt")
    return Answered(run, "retry", True, f"attempt {attempt} is queued", attempt=attempt)


async def read(kubectl: Kubectl, run: str) -> dict[str, Any]:
    """Return an AgentRun.

    Raises
    ------
    UnknownRun, ClusterError
        It is not there, or we may not read it.
    """
    try:
        return await kubectl.read(AGENT_RUNS, run)
    except NotInCluster:
        raise unknown(kubectl, run) from None


async def _change(kubectl: Kubectl, run: str, wish: Object) -> None:
    try:
        await kubectl.patch(AGENT_RUNS, run, {"spec": wish})
    except NotInCluster:
        raise unknown(kubectl, run) from None
    except ClusterRefuses as error:
        raise WishRefused(f"run {run}: {error}") from None


async def _until(kubectl: Kubectl, run: str, so: Callable[[Object], bool]) -> Object:
    """Return the run's object as soon as it is so, or as it is when patience ends.

    The wish is made by now, so that no error of looking may say otherwise.
    """
    item: dict[str, Any] = {}
    with contextlib.suppress(TimeoutError, ClusterError):
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            contextlib.aclosing(states(kubectl, run)) as found,  # type: ignore[type-var]
        ):
            async for item in found:
                if so(item):
                    break
    return item


def _held(item: Object) -> bool:
    return holds(item, ConditionType.SUSPENDED) or status_of(item).get("phase") == Phase.SUSPENDED


def _because(by: str, reason: str | None) -> str:
    """Return what stands in the spec: a person's name is no secret, and says whom to ask."""
    text = f"{by}: {reason}" if reason else by
    return text.encode()[:_LONGEST_REASON].decode(errors="ignore")
