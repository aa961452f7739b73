"""For tests of agents: a scripted model, a history in memory, crashes at will."""

from rowlock.testing.clock import StillClock
from rowlock.testing.memory import Crashed, MemoryJournal, Parked
from rowlock.testing.running import run_agent
from rowlock.testing.scripted import ScriptedModel, tool_call

__all__ = [
    "Crashed",
    "MemoryJournal",
    "Parked",
    "ScriptedModel",
    "StillClock",
    "run_agent",
    "tool_call",
]
