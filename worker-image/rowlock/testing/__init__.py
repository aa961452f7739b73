"""For tests of agents: a scripted model, a store in memory, workers that die at will."""

import importlib
import typing

from rowlock.testing.clock import StillClock
from rowlock.testing.scripted import ScriptedModel, tool_call

if typing.TYPE_CHECKING:
    from rowlock.testing.memory import Crashed, MemoryJournal, Parked
    from rowlock.testing.points import CrashAt, Point
    from rowlock.testing.running import run_agent
    from rowlock.testing.store import MemoryStore
    from rowlock.testing.trial import Life, NeverReached, Trial
    from rowlock.testing.trials import Trials

__all__ = [
    "CrashAt",
    "Crashed",
    "Life",
    "MemoryJournal",
    "MemoryStore",
    "NeverReached",
    "Parked",
    "Point",
    "ScriptedModel",
    "StillClock",
    "Trial",
    "Trials",
    "run_agent",
    "tool_call",
]

#: Loaded when asked for: who only needs a scripted model should not pay for a worker's parts.
_LATE = {
    "Crashed": "memory",
    "MemoryJournal": "memory",
    "Parked": "memory",
    "run_agent": "running",
    "CrashAt": "points",
    "Point": "points",
    "MemoryStore": "store",
    "Life": "trial",
    "NeverReached": "trial",
    "Trial": "trial",
    "Trials": "trials",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = value
    return value
