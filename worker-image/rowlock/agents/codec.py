"""A type's way into JSON and back, built once for each type.

Plain types and msgspec structs go through msgspec, all others through pydantic.
A result is read back from its own JSON before it is used for the first time:
what a replay sees can then never differ from what the first pass saw.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError

from rowlock.agents.identity import plain_object
from rowlock.agents.problems import Misfit, describe_misfit
from rowlock.errors import AgentDefinitionError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PLAIN_TYPES = (str, int, float, bool, type(None), Any)

encode_plain: Callable[[Any], bytes] = msgspec.json.Encoder(
    enc_hook=plain_object, order="deterministic"
).encode


class Codec(Protocol[T_co]):
    """How a step's result is recorded and read back."""

    def accept(self, value: Any) -> tuple[bytes, T_co]:
        """Return the JSON to record and the result as a replay would read it.

        Raises
        ------
        Misfit
            `value` is not what the annotation promises.
        """
        ...

    def read(self, body: bytes) -> T_co:
        """Return a recorded result.

        Raises
        ------
        Misfit
            It was recorded by code with another return type.
        """
        ...


class PlainCodec(Generic[T]):
    """Plain JSON values and msgspec structs."""

    def __init__(self, type_: Any, what: str = "the result") -> None:
        self._decode = msgspec.json.Decoder(type_).decode
        self._what = what

    def accept(self, value: Any) -> tuple[bytes, T]:
        """Encode and read back."""
        body = self.dump(value)
        return body, self.read(body)

    def dump(self, value: Any) -> bytes:
        """Return `value` as JSON."""
        try:
            return encode_plain(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise Misfit(f"{self._what} cannot be written as JSON: {error}") from error

    def read(self, body: bytes) -> T:
        """Decode and check the type."""
        try:
            return self._decode(body)  # type: ignore[no-any-return]
        except msgspec.MsgspecError as error:
            raise Misfit(f"{self._what} does not fit: {error}") from error


class TypedCodec(Generic[T]):
    """Everything that pydantic knows: models, dataclasses, unions, dates, sets."""

    def __init__(self, adapter: TypeAdapter[T], what: str = "the result") -> None:
        self._what = what
        self.adapter = adapter
        self._to_json = adapter.serializer.to_json
        self._from_json = adapter.validator.validate_json

    def accept(self, value: Any) -> tuple[bytes, T]:
        """Encode and read back."""
        try:
            body = self._to_json(value, warnings="none")
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise Misfit(f"{self._what} cannot be written as JSON: {error}") from error
        return body, self.read(body)

    def dump(self, value: Any) -> bytes:
        """Return `value` as JSON after a check that it has the declared type."""
        try:
            body = self._to_json(value, warnings="error")
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            in_one_line = " ".join(str(error).split())
            raise Misfit(f"{self._what} does not fit: {in_one_line}") from error
        if value is None:  # pydantic writes it as null whatever the type
            self.read(body)
        return body

    def read(self, body: bytes) -> T:
        """Decode and validate."""
        try:
            return self._from_json(body)  # type: ignore[no-any-return]
        except ValidationError as error:
            raise Misfit(describe_misfit(error, root=self._what)) from error


def codec(
    annotation: Any, *, owner: str, what: str = "the result"
) -> PlainCodec[Any] | TypedCodec[Any]:
    """Build the codec of an annotation.

    Parameters
    ----------
    owner
        Whose annotation it is, for the message.
    what
        What values of it are called in messages.
    """
    if _is_plain(annotation):
        return PlainCodec(annotation, what)
    return TypedCodec(type_adapter(annotation, owner=owner), what)


def result_codec(annotation: Any, *, owner: str) -> PlainCodec[Any] | TypedCodec[Any]:
    """Build the codec of a declared function's return annotation.

    Raises
    ------
    AgentDefinitionError
        Some part of the type cannot go through JSON.
    """
    built = codec(annotation, owner=owner)
    if isinstance(built, TypedCodec):
        schema_of(built.adapter, owner=owner, mode="serialization")
    return built


def type_adapter(annotation: Any, *, owner: str) -> TypeAdapter[Any]:
    """Return pydantic's adapter for `annotation`.

    Raises
    ------
    AgentDefinitionError
        The type cannot go through JSON.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            adapter: TypeAdapter[Any] = TypeAdapter(annotation)
            if not adapter.pydantic_complete:
                adapter.rebuild(force=True)
            return adapter
    except PydanticUndefinedAnnotation as error:
        raise AgentDefinitionError(
            f"{owner} has the type {type_name(annotation)}, which names {error.name!r}: "
            "define or import that at the top of its module, above this, "
            "and not only for type checkers."
        ) from error
    except (PydanticUserError, TypeError, NameError, UserWarning) as error:
        raise AgentDefinitionError(
            f"{owner} has the type {type_name(annotation)}, which cannot go through JSON: "
            "use a pydantic model, a dataclass or a plain type."
        ) from error


def schema_of(adapter: TypeAdapter[Any], *, owner: str, mode: Any = "validation") -> dict[str, Any]:
    """Return the JSON Schema of `adapter`'s type; a type without one is refused."""
    try:
        return adapter.json_schema(mode=mode)
    except PydanticUserError as error:
        raise AgentDefinitionError(
            f"{owner} has a type with a part that cannot go through JSON "
            f"({str(error).splitlines()[0]}): use a pydantic model, a dataclass or a plain type."
        ) from error


def type_name(annotation: Any) -> str:
    """Return how a person would write `annotation`."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _is_plain(annotation: Any) -> bool:
    if annotation is None or annotation in _PLAIN_TYPES:
        return True
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)
