"""What a sweep found, and what it dares to do about it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock.states import Phase
from rowlock.store.types import LinkedRun
from rowlock_operator.api.names import HOLD
from rowlock_operator.kube.errors import CRDsMissing
from rowlock_operator.kube.resources import ObjectKey

_ENDED = frozenset({Phase.SUCCEEDED.value, Phase.FAILED.value, Phase.CANCELLED.value})
#: So many at once are always believed: a percentage of few runs says nothing.
ALWAYS_BELIEVED = 10


@dataclass(frozen=True, slots=True)
class Listed:
    """One AgentRun as a list shows it.

    Parameters
    ----------
    revision
        Of the row that its status shows; None if it shows none.
    ttl
        Seconds that it stays after its end, by its own word.
    held
        Our finalizer is on it.
    """

    key: ObjectKey
    generation: int
    phase: str
    revision: int | None
    agent: str = ""
    ttl: int | None = None
    held: bool = False
    deleting: bool = False

    @property
    def ended(self) -> bool:
        """Tell whether its status says that it is over."""
        return self.phase in _ENDED


@dataclass(slots=True)
class Findings:
    """The differences between objects and rows.

    Parameters
    ----------
    new
        Objects without a row that have never had one.
    rowless
        Unfinished objects whose status shows a row that does not exist.
    behind
        Rows whose status is older than they are.
    vanished
        Rows whose object is not there any more, live and finished ones.
    over
        Objects without a row that are over: refused ones, above all.
    unheld, held_live, held_in_vain
        Objects of live runs without our finalizer and with it, and all with it that are deleted
        or over.
    """

    live: int = 0
    unfinished: int = 0
    new: list[Listed] = field(default_factory=list)
    rowless: list[Listed] = field(default_factory=list)
    behind: list[LinkedRun] = field(default_factory=list)
    vanished: list[LinkedRun] = field(default_factory=list)
    over: list[Listed] = field(default_factory=list)
    unheld: list[Listed] = field(default_factory=list)
    held_live: list[Listed] = field(default_factory=list)
    held_in_vain: list[Listed] = field(default_factory=list)

    @property
    def vanished_live(self) -> int:
        """Return how many live runs would be cancelled."""
        return sum(not row.finished for row in self.vanished)

    def held(self, *, percent: float) -> bool:
        """Tell whether so many runs lost their object, or their row, that it must be a mistake.

        A wrong cluster, a narrowed list of namespaces, another database.
        """
        return too_many(self.vanished_live, self.live, percent) or too_many(
            len(self.rowless), self.unfinished, percent
        )


def compare(rows: Mapping[str, LinkedRun], listed: Iterable[Listed]) -> Findings:
    """Return the differences.

    Parameters
    ----------
    rows
        All rows by uid, read *before* the list began: an object is there before its row,
        so one that is missing in the list was deleted, and no clock has to say so.
    listed
        All objects, of one state of the collection.
    """
    found = Findings(live=sum(not row.finished for row in rows.values()))
    left = dict(rows)
    for item in listed:
        found.unfinished += not item.ended
        row = left.pop(item.key.uid, None)
        _compare_hold(found, item, row)
        if row is not None:
            if row.revision > (item.revision or 0):
                found.behind.append(row)
        elif not item.ended:
            (found.new if item.revision is None else found.rowless).append(item)
        else:
            found.over.append(item)
    found.vanished = list(left.values())
    return found


def _compare_hold(found: Findings, item: Listed, row: LinkedRun | None) -> None:
    live = row is not None and not row.finished
    if item.held and (item.deleting or not live):
        found.held_in_vain.append(item)
    elif item.held:
        found.held_live.append(item)
    elif live and not item.deleting:
        found.unheld.append(item)


def listed_in(table: Mapping[str, Any]) -> list[Listed]:
    """Return the objects of one page of a list in the form of a Table.

    Raises
    ------
    CRDsMissing
        The installed definition is of another version.
    """
    columns = {column["name"]: at for at, column in enumerate(table["columnDefinitions"])}
    if not {"Phase", "Revision", "Agent", "TTL"} <= columns.keys():
        raise CRDsMissing("the AgentRun definition has not all of our columns: update rowlock-crds")
    return [_listed(row, columns) for row in table.get("rows") or ()]


def _listed(row: Mapping[str, Any], columns: Mapping[str, int]) -> Listed:
    metadata, cells = _metadata(row), row["cells"]
    revision, ttl = cells[columns["Revision"]], cells[columns["TTL"]]
    return Listed(
        _key(row),
        metadata.get("generation", 0),
        cells[columns["Phase"]] or "",
        None if revision is None else int(revision),
        cells[columns["Agent"]] or "",
        None if ttl is None else int(ttl),
        held=HOLD in (metadata.get("finalizers") or ()),
        deleting="deletionTimestamp" in metadata,
    )


def _key(row: Mapping[str, Any]) -> ObjectKey:
    metadata = _metadata(row)
    return ObjectKey(metadata["namespace"], metadata["name"], metadata["uid"])


def _metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = row["object"]["metadata"]
    return metadata


def too_many(count: int, of: int, percent: float) -> bool:
    """Tell whether `count` of so many is more than a sweep believes."""
    return count > ALWAYS_BELIEVED and count * 100 > of * percent
