"""The moments at which a worker may die, each with a name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique


@unique
class Point(StrEnum):
    """A moment in the life of a worker that has one run."""

    BEFORE_CLAIM = "before_claim"
    AFTER_CLAIM = "after_claim"
    BEFORE_START = "before_start"
    BEFORE_STEP = "before_step"
    BEFORE_INTENT = "before_intent"
    AFTER_INTENT = "after_intent"
    AFTER_EFFECT = "after_effect"
    AFTER_COMMIT = "after_commit"
    AFTER_STEP = "after_step"
    BEFORE_PARK = "before_park"
    AFTER_PARK = "after_park"
    BEFORE_FINISH = "before_finish"
    AFTER_FINISH = "after_finish"

    @property
    def of_step(self) -> bool:
        """Whether each step has one; the others are met once in the life of a worker."""
        return POINTS[self].of_step

    @property
    def meaning(self) -> str:
        """What has happened by then, and what has not."""
        return POINTS[self].meaning


@dataclass(frozen=True, slots=True)
class Moment:
    """What a point means.

    Parameters
    ----------
    of_step
        Each step has one.
    meaning
        One sentence for the reference page.
    """

    of_step: bool
    meaning: str


#: Point -> what it means, in the order in which a worker meets them.
POINTS: dict[Point, Moment] = {
    Point.BEFORE_CLAIM: Moment(False, "Nothing is leased to the worker yet."),
    Point.AFTER_CLAIM: Moment(False, "The run is leased, and the claim's answer never arrives."),
    Point.BEFORE_START: Moment(False, "History is read, and the agent's code has not begun."),
    Point.BEFORE_STEP: Moment(True, "The step may begin, and nothing of it is announced or done."),
    Point.BEFORE_INTENT: Moment(
        True, "A step with side effects is about to announce itself; others have no such point."
    ),
    Point.AFTER_INTENT: Moment(
        True, "The intent is stored, and the effect has not begun; only with side effects."
    ),
    Point.AFTER_EFFECT: Moment(
        True, "The effect has happened, and nothing of that is stored: the worst moment."
    ),
    Point.AFTER_COMMIT: Moment(
        True, "The result is stored, and the commit's answer never arrives."
    ),
    Point.AFTER_STEP: Moment(True, "The result is stored, and the agent has not seen it."),
    Point.BEFORE_PARK: Moment(
        False, "The run is about to wait without a worker: for a time, or for a person."
    ),
    Point.AFTER_PARK: Moment(
        False, "The run waits without a worker, and the commit's answer never arrives."
    ),
    Point.BEFORE_FINISH: Moment(False, "The agent has returned or failed; its end is not stored."),
    Point.AFTER_FINISH: Moment(False, "The end is stored, and the commit's answer never arrives."),
}


@dataclass(frozen=True, slots=True)
class CrashAt:
    """Where a worker is to die.

    Parameters
    ----------
    step
        For a point that each step has: which of the steps that this worker begins, from 1,
        or the key of one, or its name, which stands for the first of that name.
    """

    point: Point
    step: int | str = 1

    def meets(self, point: Point, *, nth: int = 0, key: str = "") -> bool:
        """Tell whether this is the moment."""
        if point is not self.point:
            return False
        if not point.of_step:
            return True
        if isinstance(self.step, int):
            return self.step == nth
        return names(self.step, key)


def names(step: str, key: str) -> bool:
    """Tell whether `step`, a key or a name, is that of the step `key`."""
    return key == step or key.startswith((f"{step}:", f"{step}#"))
