"""The value types of fields: integers with a format, times, lists with a key."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import (
    AwareDatetime,
    Field,
    PlainSerializer,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.config import JsonDict

#: The server does not enforce `format: int32`: a field of a spec needs a maximum of its own.
INT32_MAX: Final = 2**31 - 1

_LOOKS_LIKE_A_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d")


def _read_time(value: Any, read: ValidatorFunctionWrapHandler) -> datetime:
    """Return the time in UTC.

    The server also lets through what Python cannot hold, as the year 0 or an offset of a day,
    and any list where a date-time belongs (seen in 1.34).
    Such a time becomes the earliest one: an object must not be unreadable for what somebody
    wrote into its status.
    """
    try:
        time: datetime = read(value)
        return time.astimezone(UTC)
    except (ValidationError, OverflowError):
        if not _server_takes(value):
            raise
        return datetime.min.replace(tzinfo=UTC)


def _server_takes(value: Any) -> bool:
    if isinstance(value, str):
        return _LOOKS_LIKE_A_TIME.match(value) is not None
    return isinstance(value, list)


def _write_time(time: datetime) -> str:
    return time.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


Int32 = Annotated[int, Field(strict=True, json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(strict=True, json_schema_extra={"format": "int64"})]

#: An aware datetime; written in UTC and whole seconds, as Kubernetes writes its own.
Timestamp = Annotated[
    AwareDatetime, WrapValidator(_read_time), PlainSerializer(_write_time, return_type=str)
]


def list_keyed_by(key: str) -> JsonDict:
    """Return the keywords of a list whose entries are told apart by a field, also when applied."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
