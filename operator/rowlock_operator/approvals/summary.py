"""One line that shows a person what would be called, bounded and without surprises; pure.

Every argument gets its share of the line, so that a long one cannot hide those after it.
Values of arguments that are named like secrets are not shown: whoever may list the objects would
read them. Characters that do not print, among them those that turn the direction of text,
are shown as escapes: what a person reads is what the tool gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rowlock.store.bodies import unpack
from rowlock_operator.kube.text import cut

SUMMARY_BYTES: Final = 1024
_CALL_BYTES: Final = 704
_SHORTEST_SHARE: Final = 24
_HIDDEN: Final = "***"
_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|secret|token|api_?key|private_?key|credential|authorization",
    re.IGNORECASE,
)


def summary(tool: str, stored: bytes) -> str:
    """Return the call as people read it, at most 1,024 bytes.

    Parameters
    ----------
    stored
        Tool, arguments and note of the question, as they stand in the database.
    """
    shown = _decoded(stored)
    note = _printable(str(shown.get("note") or ""))
    call = _call(tool, shown.get("arguments"), _CALL_BYTES if note else SUMMARY_BYTES)
    return cut(f"{call}. {note}" if note else call, SUMMARY_BYTES)


def _decoded(stored: bytes) -> Mapping[str, Any]:
    try:
        shown = msgspec.json.decode(unpack(stored))
    except msgspec.DecodeError:
        return {}
    return shown if isinstance(shown, dict) else {}


def _call(tool: str, arguments: Any, limit: int) -> str:
    named = arguments if isinstance(arguments, Mapping) else None
    parts = (
        [(f"{name}=", _masked(name, value)) for name, value in named.items()]
        if named is not None
        else [("", value) for value in _listed(arguments)]
    )
    room = limit - len(tool.encode()) - 2
    share = max(_SHORTEST_SHARE, room // max(len(parts), 1) - 2)
    inner = ", ".join(cut(_printable(name) + _text(value), share) for name, value in parts)
    return cut(f"{_printable(tool)}({inner})", limit)


def _listed(arguments: Any) -> list[Any]:
    if arguments is None:
        return []
    return arguments if isinstance(arguments, list) else [arguments]


def _masked(name: str, value: Any) -> Any:
    if _SECRET.search(name):
        return _HIDDEN
    if isinstance(value, Mapping):
        return {key: _masked(key, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked("", inner) for inner in value]
    return value


def _text(value: Any) -> str:
    return _HIDDEN if value == _HIDDEN else _printable(json.dumps(value, ensure_ascii=False))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
