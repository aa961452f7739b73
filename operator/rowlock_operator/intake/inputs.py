"""The input of a run: from text or a ConfigMap to the packed JSON that its agent receives."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rowlock.errors import RowlockError
from rowlock.states import FailureReason
from rowlock.store import bodies
from rowlock_operator.api.agentrun import RunInput

#: The cap of an input from a custom resource, in bytes (the schema counts characters).
MAX_INPUT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ConfigMapKey:
    """One entry of a ConfigMap in the run's namespace."""

    name: str
    key: str


class BadInput(RowlockError):
    """The input can never be given to an agent."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def source_of(given: RunInput | None) -> ConfigMapKey | str | None:
    """Return where the input is: an entry to look up, the text itself, or None for no input."""
    if given is None:
        return None
    if given.config_map_key_ref:
        return ConfigMapKey(given.config_map_key_ref.name, given.config_map_key_ref.key)
    return given.text


def input_bytes(text: str | None) -> bytes:
    """Return the input as stored: `text` as the JSON value that it is, else as a JSON string.

    Raises
    ------
    BadInput
        It is over 64 KiB, or holds what JSON cannot.
    """
    if text is None:
        return bodies.pack(b"null")
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise BadInput(FailureReason.INVALID_INPUT, "the input is not valid Unicode") from None
    if len(raw) > MAX_INPUT_BYTES:
        raise BadInput(
            FailureReason.TOO_LARGE,
            f"the input has {len(raw)} bytes, at most {MAX_INPUT_BYTES} are allowed",
        )
    return bodies.pack(raw if _is_json(raw) else msgspec.json.encode(text))


def _is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
