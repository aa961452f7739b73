"""References to other objects, all in the same namespace."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from .model import Part

DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class LocalReference(Part):
    """An object named in the same namespace."""

    name: str = Field(min_length=1, max_length=63, pattern=DNS_LABEL)
    """Name of the object: a DNS label."""


class ConfigMapKeyReference(Part):
    """One entry of a ConfigMap in the same namespace."""

    name: str = Field(min_length=1, max_length=253)
    """Name of the ConfigMap."""

    key: str = Field(min_length=1, max_length=253)
    """Key within the ConfigMap's data."""


class DatabaseSecretReference(Part):
    """The entry of a Secret in the same namespace that holds a database URL."""

    name: str = Field(max_length=253)
    """Name of the Secret."""

    key: str = Field(default="url", max_length=253)
    """Key within the Secret's data."""
