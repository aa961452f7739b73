"""The public face of the package as a text: every name, its parameters and their types.

`tests/unit/public_names.txt` holds what was agreed; a change of it is a change for authors.
Write it anew, look at the difference, and say in a changelog fragment what changed::

    python -m tests.public_names
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pydantic

import rowlock
import rowlock.testing

AGREED = Path(__file__).parent / "unit" / "public_names.txt"
MODULES: tuple[ModuleType, ...] = (rowlock, rowlock.testing)

#: Authors get these and make none.
_MADE_FOR_THEM = (rowlock.Run, rowlock.Tool, rowlock.Model)

_WIDTH = 96


def text() -> str:
    """Return all names of all modules."""
    return "\n".join(line for module in MODULES for line in _module(module)) + "\n"


def _module(module: ModuleType) -> Iterator[str]:
    yield f"# {module.__name__}"
    yield ""
    for name in module.__all__:
        yield from _name(name, getattr(module, name))
        yield ""


def _name(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value):
        yield from _call(name, value, "")
    else:
        yield f"{name}: {type(value).__name__}"


def _class(name: str, value: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    yield f"class {name}({bases}):" if bases else f"class {name}:"
    if issubclass(value, Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in value)
    elif not (issubclass(value, BaseException) or value in _MADE_FOR_THEM):
        yield from _call("__init__", value, "    ")
    for field in _fields(value):
        yield f"    {field}"
    for member in sorted(vars(value)):
        if not member.startswith("_"):
            yield from _member(member, inspect.getattr_static(value, member))


def _fields(value: type) -> Iterator[str]:
    """Yield attributes that are data; those of structs and dataclasses stand in `__init__`."""
    if dataclasses.is_dataclass(value) or issubclass(value, msgspec.Struct | pydantic.BaseModel):
        return
    for field, annotation in sorted(vars(value).get("__annotations__", {}).items()):
        if not field.startswith("_"):
            yield f"{field}: {annotation}"


def _member(member: str, found: Any) -> Iterator[str]:
    if isinstance(found, property):
        returns = inspect.signature(found.fget).return_annotation if found.fget else Any
        yield f"    {member}: {_annotation(returns)}  (read only)"
    elif isinstance(found, staticmethod | classmethod):
        yield from _call(member, found.__func__, "    ")
    elif inspect.isfunction(found):
        yield from _call(member, found, "    ")


def _call(name: str, value: Any, indent: str) -> Iterator[str]:
    signature = inspect.signature(value)
    parameters = [
        _parameter(one)
        for one in signature.parameters.values()
        if one.name not in ("self", "cls") and not one.name.startswith("_")
    ]
    awaited = "async " if inspect.iscoroutinefunction(value) else ""
    returns = "" if inspect.isclass(value) else f" -> {_annotation(signature.return_annotation)}"
    one_line = f"{indent}{awaited}{name}({', '.join(parameters)}){returns}"
    if len(one_line) <= _WIDTH:
        yield one_line
        return
    yield f"{indent}{awaited}{name}("
    yield from (f"{indent}    {parameter}," for parameter in parameters)
    yield f"{indent}){returns}"


def _parameter(parameter: inspect.Parameter) -> str:
    mark = _MARKS.get(parameter.kind.name, "")
    shown = f"{mark}{parameter.name}: {_annotation(parameter.annotation)}"
    if parameter.default is inspect.Parameter.empty:
        return shown
    return f"{shown} = {_ADDRESS.sub('', repr(parameter.default))}"


_MARKS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**", "KEYWORD_ONLY": "kw "}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return "?"
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


if __name__ == "__main__":
    AGREED.write_text(text())
