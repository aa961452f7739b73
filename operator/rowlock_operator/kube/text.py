"""Texts that fit: cut in bytes, never inside a character, because the API server counts storage."""

from __future__ import annotations

import re

_ELLIPSIS = "…"
_NOT_A_REASON = re.compile(r"[^A-Za-z0-9_]")


def cut(text: str, limit: int) -> str:
    """Return `text` in at most `limit` bytes of UTF-8, with an ellipsis where it was cut.

    Characters that JSON escapes to six bytes are dropped first: a message is no place for them.
    """
    clean = text.replace("\x00", "")
    raw = clean.encode("utf-8", "replace")
    if len(raw) <= limit:
        return clean if raw.isascii() else raw.decode("utf-8", "replace")
    return raw[: limit - 3].decode("utf-8", "ignore") + _ELLIPSIS


def reason_word(reason: str) -> str:
    """Return `reason` as the API server accepts it: letters, digits, underscores, 1 to 64."""
    word = _NOT_A_REASON.sub("", reason)[:64]
    return word if word[:1].isalpha() else f"R{word}"[:64] if word else "Unknown"
