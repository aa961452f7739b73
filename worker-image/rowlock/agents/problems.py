"""What is wrong with a value, in one bounded message that names the fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from rowlock.errors import RunError

#: `status.failure.message` holds 1,024 characters; what stands around this needs some of them.
MAX_LENGTH = 800

_MAX_VALUE_LENGTH = 40


class Misfit(Exception):
    """A value does not fit its type; the message says where and what would be right."""


def describe_misfit(error: ValidationError, *, root: str) -> str:
    """Return all problems of `error` in one line.

    Parameters
    ----------
    root
        How to call the value itself where a problem has no path.
    """
    return _joined([_problem(detail, root) for detail in error.errors(include_url=False)])


def describe_error(error: BaseException) -> str:
    """Return type and message of `error` and of all that caused it, outermost first."""
    links = [f"{type(link).__name__}: {link}".rstrip(": ") for link in causes(error)]
    return cut(" <- ".join(links), MAX_LENGTH)


def cut(text: str, length: int) -> str:
    """Return `text`, shortened to `length` characters with a mark at the end."""
    return text if len(text) <= length else text[: length - 1] + "…"


def as_run_error(error: BaseException) -> RunError | None:
    """Return the first run error in `error`, which may be a group from a task group."""
    if isinstance(error, RunError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for found in map(as_run_error, error.exceptions) if found), None)
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and all that caused it, outermost first."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _problem(detail: Any, root: str) -> str:
    where = _path(detail["loc"]) or root
    if detail["type"] == "missing":
        return f"{where}: is required"
    if detail["type"] == "extra_forbidden":
        return f"{where}: is not known"
    return f"{where}: {detail['msg']} (got {cut(repr(detail['input']), _MAX_VALUE_LENGTH)})"


def _path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _joined(problems: list[str]) -> str:
    text = ""
    for index, problem in enumerate(problems):
        longer = f"{text}; {problem}" if text else cut(problem, MAX_LENGTH)
        if len(longer) > MAX_LENGTH:
            return f"{text}; and {len(problems) - index} more"
        text = longer
    return text
