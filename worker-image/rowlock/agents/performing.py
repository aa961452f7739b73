"""The far side of a blocking call: find the function, read its arguments, call it, answer.

An executor process does that for a worker, and a thread does it for a history in memory:
one code path, so that a test meets what production meets.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, NoReturn, cast

from rowlock.agents.blocking import arguments_of
from rowlock.agents.context import CURRENT, Call
from rowlock.agents.crossing import BlockingAnswer, BlockingCall, Kind, Trouble, trouble_of
from rowlock.agents.located import Location, find
from rowlock.agents.protocol import Journal
from rowlock.agents.run import Run
from rowlock.agents.signature import Declared, step_function
from rowlock.agents.tools import Tool, tool
from rowlock.errors import AgentError
from rowlock.options import RunOptions


def perform(call: BlockingCall, begun: Callable[[], None] = lambda: None) -> BlockingAnswer:
    """Make the call and return how it ended, whatever it raised.

    Parameters
    ----------
    begun
        Called right before the function is: what fails earlier surely did not begin.
    """
    inner = Call(call.run_id, "", 0)
    inner.id = call.call_id
    body, trouble = _outcome(call, inner, begun)
    return BlockingAnswer(body, trouble, inner.used, tuple(inner.degraded))


class ThreadSeat:
    """`rowlock.agents.protocol.Seat` without a process: the call is made in a thread."""

    async def call(self, call: BlockingCall) -> BlockingAnswer:
        """Make the call; after a timeout the thread runs on, for nothing can stop it."""
        try:
            async with asyncio.timeout(call.timeout):
                return await asyncio.to_thread(perform, call)
        except TimeoutError as error:
            raise TimeoutError(f"no result within its timeout of {call.timeout:g} s") from error

    def leave(self) -> None:
        """Nothing is held."""


def _outcome(
    call: BlockingCall, inner: Call, begun: Callable[[], None]
) -> tuple[bytes, Trouble | None]:
    try:
        do = _prepared(call)
    except BaseException as error:  # an import may raise anything, sys.exit included
        return b"", trouble_of(error, Kind.NOT_STARTED)
    begun()
    token = CURRENT.set(inner)
    try:
        return do(), None
    except BaseException as error:  # a tool may raise anything: it is the answer
        return b"", trouble_of(error)
    finally:
        CURRENT.reset(token)


def _prepared(call: BlockingCall) -> Callable[[], bytes]:
    """Return the call with everything found and read."""
    found = find(Location(call.module, call.qualname))
    run = CalledRun(call.run_id, call.attempt)
    if call.as_tool:
        declared = _as_tool(found)
        given = declared.parse(call.arguments.decode())
        return lambda: declared.codec.accept(_settled(declared.answer_here(run, given)))[0]
    fn = found.fn if isinstance(found, Declared) else found
    known = step_function(fn, run_type=Run)
    args = arguments_of(fn, known.takes_run).read(call.arguments)
    if known.takes_run:
        args.insert(0, run)
    return lambda: known.codec.accept(_settled(fn(*args)))[0]


@lru_cache(1024)
def _as_tool(found: Callable[..., Any]) -> Tool[..., Any]:
    """Return the tool; one that was declared in place stands under its function's name."""
    return found if isinstance(found, Tool) else tool(name="tool")(found)


def _settled(value: Any) -> Any:
    """Await what a plain function that wraps an async one returned."""
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


class CalledRun(Run):
    """What a function sees of its run from another process.

    It has the run's names, and what it says of its own call goes back with the result.
    All else needs the run itself, which is on an event loop elsewhere.
    """

    def __init__(self, run_id: int, attempt: int) -> None:
        super().__init__(cast("Journal", _Names(run_id, attempt)))

    def step(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refuse."""
        _refuse("step")

    def progress(self, text: str) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        _refuse("progress")

    def text(self, delta: str) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        _refuse("text")

    @property
    def usage(self) -> NoReturn:
        """Refuse."""
        _refuse("usage")


class _Names:
    """All that is left of a run's journal."""

    options = RunOptions()

    def __init__(self, run_id: int, attempt: int) -> None:
        self.run_id = run_id
        self.attempt = attempt

    def recorded(self) -> tuple[()]:
        """Know nothing."""
        return ()


def _refuse(what: str) -> NoReturn:
    raise AgentError(
        f"run.{what} needs the event loop: in a plain `def`, which runs in an executor process, "
        "`run` has id, attempt, call_id, mark_degraded and count_usage. Make it `async def`."
    )
