"""From what a server answers to the error that says whether to ask again.

| answer | error | asked again |
|---|---|---|
| 408, 409, 425, 429, 5xx | `ModelUnavailable` | after what it says, else 1, 2, 4, 8 s |
| no connection, no answer in time, cut or garbled stream | `ModelUnavailable` | yes |
| an empty answer | `ModelUnavailable` | yes |
| 400, 401, 403, 404, 422 and all else | `ModelRefused` | no |
| one of these that names the form of a typed answer | `FormRefused` | at once, in the next form |
| the model declines, or its answer was filtered | `ModelRefused` | no |
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import msgspec

from rowlock.agents.problems import cut
from rowlock.errors import ModelRefused, ModelUnavailable

Headers = Mapping[bytes, bytes]
Redact = Callable[[str], str]

_AGAIN = {408, 409, 425, 429}
_MAX_MESSAGE = 400
#: How servers name what they do not take: the field of the request, or a part of it.
_FORM = re.compile(
    rb"response_?format|json_schema|json_object|structured.outputs?|\bstrict\b", re.I
)
#: A page is looked at so far: what people may want to read stands at its beginning.
_MAX_PAGE = 8192
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


class Cut(ModelUnavailable):
    """The connection ended before the answer did."""


class FormRefused(ModelRefused):
    """The server does not take the form in which a typed answer was asked for."""


def from_status(
    status: int, headers: Headers, body: bytes, *, redact: Redact
) -> ModelRefused | ModelUnavailable:
    """Return the error that an answer other than 200 means.

    Parameters
    ----------
    redact
        Takes out of a text what nobody may read.
    """
    said = message(body, redact=redact)
    if 300 <= status < 400:
        where = headers.get(b"location", b"elsewhere").decode("latin-1")
        said = f"it redirects to {where}; a request carries a key and follows nobody"
    said = cut(redact(said), _MAX_MESSAGE)  # a location may hold secrets, too
    text = f"the model's server answered {_named(status)}" + (f": {said}" if said else "")
    if status in _AGAIN or status >= 500:
        return ModelUnavailable(text, retry_after=retry_after(headers))
    return _refused(text, body)


def from_event(error: Any, *, redact: Redact) -> ModelRefused | ModelUnavailable:
    """Return the error that a server sent in the middle of its stream."""
    code = error.get("code") if isinstance(error, dict) else None
    kind = str(error.get("type", "")) if isinstance(error, dict) else ""
    said = cut(redact(_message(error)), _MAX_MESSAGE)
    text = f"the model's server ended its answer: {said}"
    client_error = isinstance(code, int) and 400 <= code < 500 and code not in _AGAIN
    if client_error or kind in ("invalid_request_error", "authentication_error"):
        return _refused(text, msgspec.json.encode(error))
    return ModelUnavailable(text)


def _refused(text: str, said: bytes) -> ModelRefused:
    """Return the error of a request that will not be answered, by what the server said of it."""
    return FormRefused(text) if _FORM.search(said) else ModelRefused(text)


def retry_after(headers: Headers, *, now: Callable[[], float] = time.time) -> float | None:
    """Return how many seconds the server asks to wait; None if it does not say.

    `retry-after-ms` is finer and wins.
    A date is compared with the server's own clock where it tells that, too.
    """
    milliseconds = _number(headers.get(b"retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    seconds = _number(headers.get(b"retry-after"))
    if seconds is not None:
        return seconds
    until = _date(headers.get(b"retry-after"))
    if until is None:
        return None
    server_now = _date(headers.get(b"date"))
    return max(0.0, until - (now() if server_now is None else server_now))


def message(body: bytes, *, redact: Redact) -> str:
    """Return what an error's body says to a person: JSON's message, else its text, in one line."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        page = redact(body.decode("utf-8", "replace"))
        return _one_line(_TAG.sub(" ", page[:_MAX_PAGE]))
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, dict):
        for name in ("error", "detail", "message"):
            if found.get(name):
                return _message(found[name])
    return _one_line(body.decode("utf-8", "replace"))


def _message(error: Any) -> str:
    if isinstance(error, dict) and error.get("message"):
        error = error["message"]
    if isinstance(error, str):
        return _one_line(error)
    return _one_line(msgspec.json.encode(error).decode())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _number(value: bytes | None) -> float | None:
    try:
        number = float(value or b"")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(value: bytes | None) -> float | None:
    try:
        date = parsedate_to_datetime((value or b"").decode("latin-1"))
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
