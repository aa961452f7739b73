"""Functions by module and name: the only way in which one reaches another process.

An executor imports the module and looks the name up, as any `import` would.
So it cannot find a lambda, a closure, a bound method or a `functools.partial`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any, NamedTuple

from rowlock.agents.signature import Declared
from rowlock.errors import AgentDefinitionError

_INSTEAD = (
    "A plain `def` runs in an executor process, which finds it by its module and name. "
    "Define it at the top of its module, or make it `async def`, or say blocking=False to run it "
    "in a thread of the event loop's process, which nothing can stop."
)


class Location(NamedTuple):
    """Where a function is found."""

    module: str
    qualname: str


def check_declared(fn: Callable[..., Any], *, owner: str) -> None:
    """Refuse, where it is declared, a function that nobody can find by its name.

    Raises
    ------
    AgentDefinitionError
        It is a lambda, a closure or no function at all.
    """
    qualname = getattr(fn, "__qualname__", "<")
    if "<" in qualname:
        raise _not_found(fn, owner)


def locate(fn: Callable[..., Any], *, owner: str) -> Location:
    """Return where `fn` is found.

    Raises
    ------
    AgentDefinitionError
        Nowhere: what stands there is something else, or nothing.
    """
    module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(qualname, str)):
        raise _not_found(fn, owner)
    try:
        found = _attribute(sys.modules.get(module), qualname)
    except AttributeError:
        raise _not_found(fn, owner) from None
    if not _same(found, fn):
        raise _not_found(fn, owner)
    return Location(module, qualname)


def find(location: Location) -> Callable[..., Any]:
    """Return the function, or the tool, at `location`, importing its module if need be."""
    found: Callable[..., Any] = _attribute(
        importlib.import_module(location.module), location.qualname
    )
    return found


def _attribute(holder: Any, path: str) -> Any:
    for name in path.split("."):
        holder = getattr(holder, name)
    return holder


def _same(found: Any, fn: Callable[..., Any]) -> bool:
    if isinstance(found, Declared):
        found = found.fn
    # Each look-up of a class method makes a new object; those of builtins too.
    return found is fn or (isinstance(fn, MethodType | BuiltinMethodType) and found == fn)


def _not_found(fn: Callable[..., Any], owner: str) -> AgentDefinitionError:
    name = getattr(fn, "__qualname__", None) or type(fn).__name__
    module = getattr(fn, "__module__", None) or "?"
    return AgentDefinitionError(
        f"{owner}: {name!r} is not found in module {module!r} under that name. {_INSTEAD}"
    )
