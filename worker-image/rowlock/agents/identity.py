"""What makes two steps the same: their key, and a digest of their arguments.

A key is `name:key` when the author gave one, else `name#digest.nth`.
The digest is taken over a canonical form, so that it is the same in every process:
object keys and set members are sorted, and models count as the data they hold.

Sets of sets need care: `<` between two sets means "is a part of", which sorts nothing.
Such values, and objects with keys that are no strings, take a slower way through Python.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Set
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from rowlock.errors import AgentError

DIGEST_BYTES = 12

#: What a run's own entries are called, which are no steps.
RESERVED_NAMES = frozenset(("progress", "sleep"))

#: Longer keys keep their beginning and end in a digest: an index row has to hold them.
MAX_KEY_LENGTH = 200


def digest(values: tuple[Any, ...]) -> str:
    """Return 24 hexadecimal digits that stand for `values`.

    Raises
    ------
    TypeError
        A value is not data, for example a client or a function.
    """
    return digest_bytes(canonical(values))


def digest_bytes(data: bytes) -> str:
    """Return 24 hexadecimal digits that stand for `data`."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def canonical(values: tuple[Any, ...]) -> bytes:
    """Return `values` as JSON that does not depend on the order of sets and objects."""
    try:
        encoded = _ENCODER.encode(values)
    except TypeError:
        encoded = b"[[["
    if encoded.find(b"[[", 1) < 0:
        return encoded
    return _ENCODER.encode(_ordered(values))


def keyed(name: str, key: str | int) -> str:
    """Return the identity of a step whose author gave it a key."""
    check_name(name)
    text = str(key)
    if not text.isprintable():
        raise AgentError(
            f"The key {text!r} of step {name!r} holds characters that cannot be printed."
        )
    return _shortened(f"{name}:{text}")


def numbered(name: str, args_digest: str, nth: int) -> str:
    """Return the identity of the `nth` step (from 0) of this name with these arguments."""
    check_name(name)
    return _shortened(f"{name}#{args_digest}.{nth}")


@lru_cache(maxsize=1024)
def check_name(name: str) -> None:
    """Refuse a name that would make keys ambiguous or unprintable."""
    if not name or not name.isprintable() or ":" in name or "#" in name:
        raise AgentError(
            f"The name {name!r} of a step must be printable text without ':' and '#': "
            "give what varies as key=."
        )


def _shortened(key: str) -> str:
    if len(key) <= MAX_KEY_LENGTH:
        return key
    return f"{key[: MAX_KEY_LENGTH - 25]}~{digest_bytes(key.encode())}"


def plain_object(value: Any) -> Any:
    """Return the data that `value` stands for, when msgspec does not know its type."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Iterator):
        raise TypeError(f"{type(value).__name__} can be read only once: make it a list")
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        raise TypeError(f"{type(value).__name__} is not data") from None


def _ordered(value: Any) -> Any:
    """Return `value` with every set and every object with odd keys as a sorted list."""
    if isinstance(value, BaseModel):
        return _ordered(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _ordered(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return _ordered_mapping(value)
    if isinstance(value, Set):
        return _sorted([_ordered(item) for item in value])
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in value]
    return value


def _ordered_mapping(value: Mapping[Any, Any]) -> Any:
    if all(isinstance(key, str) for key in value):
        return {key: _ordered(item) for key, item in value.items()}
    return _sorted([[_ordered(key), _ordered(item)] for key, item in value.items()])


def _sorted(items: list[Any]) -> list[msgspec.Raw]:
    return [msgspec.Raw(encoded) for encoded in sorted(_ENCODER.encode(item) for item in items)]


_ENCODER = msgspec.json.Encoder(order="deterministic", enc_hook=plain_object)
