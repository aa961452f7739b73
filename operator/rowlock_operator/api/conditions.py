"""Conditions, as every Kubernetes tool knows them."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final

from pydantic import Field

from .fields import Int64, Timestamp, list_keyed_by
from .model import Part

#: Keywords of a `conditions` list.
KEYED_BY_TYPE: Final = list_keyed_by("type")


@unique
class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Part):
    """One observation of the object."""

    type: str = Field(max_length=64)
    """What is observed; the types of a kind are part of its API."""

    status: ConditionStatus
    """Whether it holds; Unknown while that cannot be told."""

    observed_generation: Int64 | None = Field(default=None, ge=0)
    """metadata.generation for which this was observed; a smaller one than the object's is stale."""

    last_transition_time: Timestamp
    """When the status last changed from one value to another."""

    reason: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    """Why, in one CamelCase word for programs."""

    message: str = Field(max_length=256)
    """Why, in a sentence for people; may be empty."""
