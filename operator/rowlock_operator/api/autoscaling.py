"""How the number of a pool's workers follows the work."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import ClassVar

from pydantic import Field

from .fields import INT32_MAX, Int32
from .model import Part, Rule


@unique
class ScalingMode(StrEnum):
    """Who decides the number of workers."""

    INTERNAL = "Internal"
    EXTERNAL = "External"
    NONE = "None"


class ScaleUp(Part):
    """How fast a pool may grow."""

    stabilization_window_seconds: Int32 = Field(default=0, ge=0, le=3600)
    """Seconds for which more workers must have been needed without a break."""

    max_step_percent: Int32 = Field(default=100, ge=1, le=1000)
    """Largest step, in percent of the present number; one worker is always allowed."""


class ScaleDown(Part):
    """How fast a pool may shrink."""

    stabilization_window_seconds: Int32 = Field(default=300, ge=0, le=3600)
    """Seconds for which fewer workers must have been enough without a break."""

    max_step_percent: Int32 = Field(default=50, ge=1, le=100)
    """Largest step, in percent of the present number; one worker is always allowed."""


class Autoscaling(Part):
    """Bounds and goals of the number of workers."""

    mode: ScalingMode = ScalingMode.INTERNAL
    """Internal: the operator decides from the queue; External: an autoscaler through `/scale`;
    None: spec.replicas stands."""

    min_replicas: Int32 = Field(default=1, ge=0, le=1000)
    """Fewest workers; 0 lets an idle pool vanish."""

    max_replicas: Int32 = Field(default=10, ge=1, le=1000)
    """Most workers."""

    target_slot_utilization_percent: Int32 = Field(default=75, ge=10, le=100)
    """How full the slots should be; the rest takes up bursts while Pods start."""

    target_queue_wait_seconds: Int32 = Field(default=30, ge=1, le=INT32_MAX)
    """A run that could be claimed and waits longer than this asks for one more worker."""

    poll_period_seconds: Int32 = Field(default=10, ge=1, le=300)
    """Seconds between two decisions."""

    scale_up: ScaleUp = ScaleUp()
    """How fast the pool may grow."""

    scale_down: ScaleDown = ScaleDown()
    """How fast the pool may shrink."""

    rules: ClassVar = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas must not exceed maxReplicas",
        ),
    )
