"""What the branches of one run wait for, and whether the run may leave its worker meanwhile.

A run parks when none of its branches can go on before a wait is over that is worth it:
no effect is under way, and nothing is on its way to the next one.
What an agent awaits outside of its steps and waits cannot be seen;
a moment of quiet stands for "it awaits nothing else", and after the wait it begins again anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.agents.protocol import Question
from rowlock.states import ParkReason


@dataclass(eq=False, slots=True)
class Wait:
    """One branch that waits for long.

    Parameters
    ----------
    due
        Monotonic seconds; None if only a person can end it.
    """

    reason: ParkReason
    due: float | None = None
    question: Question | None = None


class Waits:
    """All branches of one run that do not go on by themselves within a moment.

    Attributes
    ----------
    flying
        Effects under way.
    held
        Branches that wait where the run could be cut: at a boundary, between tries, for long.
    moves
        Rises whenever a branch goes from one state to another.
    """

    __slots__ = ("_long", "flying", "held", "moves")

    def __init__(self) -> None:
        self.flying = 0
        self.held = 0
        self.moves = 0
        self._long: list[Wait] = []

    def begin(self, wait: Wait | None) -> None:
        """A branch waits from now on; None for a wait that is short."""
        self.held += 1
        self.moves += 1
        if wait is not None:
            self._long.append(wait)

    def end(self, wait: Wait | None) -> None:
        """A branch goes on."""
        self.held -= 1
        self.moves += 1
        if wait is not None:
            self._long.remove(wait)

    @property
    def cuttable(self) -> bool:
        """Is a branch at a place where the run may be cut, and none in an effect?"""
        return self.held > 0 and self.flying == 0

    @property
    def blocked(self) -> bool:
        """Does every branch that is held wait for long?"""
        return self.flying == 0 and 0 < self.held == len(self._long)

    def long(self) -> tuple[Wait, ...]:
        """Return the long waits, in the order in which they began."""
        return tuple(self._long)

    def due(self) -> float | None:
        """Return when the first long wait is over; None if only people can end one."""
        return first_due(self._long)


def first_due(waits: list[Wait] | tuple[Wait, ...]) -> float | None:
    """Return when the first of `waits` is over; None if only people can end one."""
    return min((wait.due for wait in waits if wait.due is not None), default=None)
