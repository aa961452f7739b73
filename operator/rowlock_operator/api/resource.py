"""A kind: its names, columns, subresources, and the envelope around spec and status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from .fields import Int64, Timestamp
from .model import Part
from .names import API_VERSION, GROUP

ColumnType = Literal["string", "integer", "date"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`.

    Parameters
    ----------
    path
        JSONPath from the object's root; where it finds nothing the cell is empty.
    wide
        Show it only with `-o wide`.
    """

    name: str
    path: str
    type: ColumnType = "string"
    wide: bool = False


AGE = Column("Age", ".metadata.creationTimestamp", "date")


def condition_column(type_: str) -> Column:
    """Return the column that shows the status of a condition."""
    return Column(type_, f'.status.conditions[?(@.type=="{type_}")].status')


@dataclass(frozen=True, slots=True)
class Scale:
    """Where `/scale` finds its numbers, for autoscalers."""

    spec_replicas: str
    status_replicas: str
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What the API server must know of a kind beside its schema.

    Parameters
    ----------
    selectable
        Paths for `--field-selector`: at most 8, scalar, never below metadata.
    scale
        None for a kind without `/scale`.
    """

    kind: str
    plural: str
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    scale: Scale | None = None

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


class Metadata(Part):
    """What we read of an object's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: Int64 = 0
    resource_version: str = ""
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Resource(Part):
    """A custom resource; a subclass adds `definition`, `kind`, `spec` and `status`."""

    definition: ClassVar[Definition]

    api_version: str = API_VERSION
    metadata: Metadata
