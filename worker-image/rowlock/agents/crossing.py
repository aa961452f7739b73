"""What crosses between a run and the executor process that makes one of its calls.

An exception does not cross as an object: it may hold sockets, and its class may not pickle.
What crosses is what a run has to know of it: its kind, which decides whether to try again,
`retry_after`, and type and message of it and its causes, from which one that reads alike is made.
"""

from __future__ import annotations

import math
import traceback
from enum import StrEnum, unique
from functools import lru_cache
from itertools import islice

import msgspec

from rowlock.agents.context import NO_TOKENS, Tokens
from rowlock.agents.problems import Misfit, causes, cut
from rowlock.errors import AgentError, NotStarted, PermanentError, TooLarge

_MAX_CAUSES = 8
_MAX_MESSAGE = 1000
_MAX_NAME = 100
_MAX_TRACEBACK = 8000


class BlockingCall(msgspec.Struct, frozen=True):
    """One call of a blocking function.

    Parameters
    ----------
    module, qualname
        Where the function is found.
    as_tool
        `arguments` is the JSON object that a model wrote; else a JSON array.
    timeout
        Seconds from its begin; None for no limit.
    """

    module: str
    qualname: str
    as_tool: bool
    arguments: bytes
    run_id: int
    attempt: int
    call_id: str
    timeout: float | None = None


@unique
class Kind(StrEnum):
    """What an exception means for the next try; see `rowlock.agents.retry`."""

    PERMANENT = "permanent"
    NOT_STARTED = "not_started"
    MISFIT = "misfit"
    TOO_LARGE = "too_large"
    AGENT = "agent"
    EXIT = "exit"
    ERROR = "error"


class Raised(Exception):
    """What a function in an executor raised; each is shown under the name of its own type."""


_CLASSES: dict[Kind, type[BaseException]] = {
    Kind.PERMANENT: PermanentError,
    Kind.NOT_STARTED: NotStarted,
    Kind.MISFIT: Misfit,
    Kind.TOO_LARGE: TooLarge,
    Kind.AGENT: AgentError,
    Kind.EXIT: SystemExit,
    Kind.ERROR: Raised,
}


class Trouble(msgspec.Struct, frozen=True):
    """An exception on its way.

    Parameters
    ----------
    links
        Type and message of it and of its causes, outermost first.
    retry_after
        Seconds that it asked to wait; None if it did not.
    trace
        Its traceback, for the log.
    """

    kind: Kind
    links: list[tuple[str, str]]
    retry_after: float | None = None
    trace: str = ""


class BlockingAnswer(msgspec.Struct, frozen=True):
    """How a call ended.

    Parameters
    ----------
    body
        The result as JSON, if there is no trouble.
    used, degraded
        What `run.count_usage` and `run.mark_degraded` said.
    """

    body: bytes = b"null"
    trouble: Trouble | None = None
    used: Tokens = NO_TOKENS
    degraded: tuple[str, ...] = ()


def trouble_of(error: BaseException, kind: Kind | None = None) -> Trouble:
    """Return what has to be known of `error`; never raises.

    Parameters
    ----------
    kind
        What it means, where that does not depend on its class.
    """
    links = [
        (cut(_clean(type(link).__name__), _MAX_NAME), cut(_text(link), _MAX_MESSAGE))
        for link in islice(causes(error), _MAX_CAUSES)
    ]
    return Trouble(kind or _kind_of(error), links, _retry_after(error), _trace(error))


def error_of(trouble: Trouble) -> BaseException:
    """Return an exception that is shown, and counts, as the one that `trouble` was made of."""
    cause: BaseException | None = None
    for name, message in reversed(trouble.links[1:]):
        link = _named(Kind.ERROR, name)(message)
        link.__cause__ = cause
        cause = link
    name, message = trouble.links[0]
    error = _named(trouble.kind, name)(message)
    error.__cause__ = cause
    if trouble.retry_after is not None:
        error.retry_after = trouble.retry_after  # type: ignore[attr-defined]
    if trouble.trace:
        error.add_note(f"In the executor:\n{trouble.trace}")
    return error


def _kind_of(error: BaseException) -> Kind:
    return next(
        (kind for kind, class_ in _CLASSES.items() if isinstance(error, class_)), Kind.ERROR
    )


@lru_cache(256)
def _named(kind: Kind, name: str) -> type[BaseException]:
    base = _CLASSES[kind]
    return base if base.__name__ == name else type(name, (base,), {})


def _retry_after(error: BaseException) -> float | None:
    try:
        asked = float(error.retry_after)  # type: ignore[attr-defined]
    except Exception:  # absent, no number, or a property that raises
        return None
    return asked if math.isfinite(asked) and asked >= 0 else None


def _text(error: BaseException) -> str:
    try:
        return _clean(str(error))
    except Exception:  # an author's __str__ may raise, and must not hide that there was an error
        return "(its message cannot be read)"


def _trace(error: BaseException) -> str:
    try:
        return _clean("".join(traceback.format_exception(error)))[-_MAX_TRACEBACK:]
    except Exception:  # formatting asks the same __str__
        return ""


def _clean(text: str) -> str:
    """Return `text` without lone surrogates, which no message can hold."""
    return text.encode("utf-8", "replace").decode()
