"""Commands about one run: suspend, continue, cancel, approve, deny, retry.

Each writes a wish or an answer into the database and says what came of it.
Each may be repeated: what is done already is no error.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from rowlock.errors import HistoryExpired, WishRefused
from rowlock.settings import DatabaseSettings, load
from rowlock.states import Decision
from rowlock.store import approvals, intake, parking, redrive
from rowlock.store.bodies import unpack
from rowlock.store.connection import Connection
from rowlock.store.types import Approval, Decided, Deciding, Redriving, RunId
from rowlock.terminal import database_url, one_line_errors

T = TypeVar("T")

#: How long a command asks again before it leaves the rest to the workers.
_PATIENCE_SECONDS = 5.0
_AGAIN_SECONDS = 0.2


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return f"uid {os.getuid()}"


Run = Annotated[int, typer.Argument(metavar="RUN", help="The run's number.", min=1)]
By = Annotated[str, typer.Option("--by", default_factory=_me, help="Who asks; default: you.")]
Reason = Annotated[str | None, typer.Option(help="Why; it is kept with the run.")]
Step = Annotated[str | None, typer.Argument(help="The step, where several questions are open.")]
Digest = Annotated[
    str | None, typer.Option(help="Refuse to answer a question with another digest.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    named = {"continue": continue_, "approvals": list_approvals}
    plain = {command.__name__: command for command in (suspend, cancel, approve, deny, retry)}
    for name, command in (plain | named).items():
        app.command(name)(command)


def suspend(run: Run, by: By, reason: Reason = None) -> None:
    """Hold a run at its next step boundary until somebody continues it."""

    async def ask(conn: Connection) -> str:
        await _must_be_live(conn, RunId(run))
        done = await _until_done(
            lambda: parking.request_suspend(conn, [RunId(run)], by=by, reason=reason)
        )
        return "suspended" if done else "asked: it is held at its next step boundary"

    _do(run, ask)


def continue_(run: Run) -> None:
    """Let a suspended run go on."""

    async def ask(conn: Connection) -> str:
        await _must_be_live(conn, RunId(run))
        if await parking.request_continue(conn, [RunId(run)]):
            return "continues"
        raise WishRefused(f"run {run} is not suspended")

    _do(run, ask)


def cancel(run: Run, by: By, reason: Reason = None) -> None:
    """End a run, wherever it stands."""

    async def ask(conn: Connection) -> str:
        if not (await redrive.standing(conn, RunId(run))).there:
            raise _unknown(run)
        done = await _until_done(
            lambda: intake.request_cancel(conn, [RunId(run)], by=by, reason=reason)
        )
        return "ended" if done else "asked: its worker is ending it"

    _do(run, ask)


def list_approvals(
    run: Annotated[int | None, typer.Argument(metavar="[RUN]", help="Only of this run.")] = None,
) -> None:
    """List the questions that wait for a person, the oldest first."""

    async def look(conn: Connection) -> list[Approval]:
        return await approvals.pending_approvals(conn, None if run is None else RunId(run))

    with one_line_errors():
        for one in asyncio.run(_with_store(look)):
            typer.echo(_shown(one))


def approve(
    run: Run, by: By, step: Step = None, digest: Digest = None, reason: Reason = None
) -> None:
    """Allow a tool call that waits for it."""
    _do(run, lambda conn: _answer(conn, run, step, digest, Decision.APPROVED, by, reason or ""))


def deny(
    run: Run,
    by: By,
    reason: Annotated[str, typer.Option(help="Why; the model is told.")],
    step: Step = None,
    digest: Digest = None,
) -> None:
    """Forbid a tool call that waits; its model is told why."""
    _do(run, lambda conn: _answer(conn, run, step, digest, Decision.DENIED, by, reason))


def retry(run: Run, by: By) -> None:
    """Start another attempt of a run that has ended; finished steps are read back."""

    async def ask(conn: Connection) -> str:
        outcome = await redrive.redrive(conn, RunId(run), by=by)
        if outcome in (Redriving.QUEUED, Redriving.ALREADY_ASKED):
            attempt = (await redrive.standing(conn, RunId(run))).newest
            return f"attempt {attempt} is queued"
        if outcome is Redriving.HISTORY_EXPIRED:
            raise HistoryExpired(f"the history of run {run} is past its retention: start a new run")
        if outcome is Redriving.NOT_FINISHED:
            raise WishRefused(f"run {run} has not ended: cancel it first, or wait")
        raise _unknown(run)

    _do(run, ask)


async def _answer(
    conn: Connection,
    run: int,
    step: str | None,
    digest: str | None,
    decision: Decision,
    by: str,
    reason: str,
) -> str:
    asked = _the_one(await approvals.pending_approvals(conn, RunId(run)), run, step)
    if digest is not None and digest != asked.digest:
        raise WishRefused(f"the question about {asked.step_key} has digest {asked.digest}")
    decided = await approvals.decide(
        conn,
        asked.run_id,
        step_key=asked.step_key,
        digest=asked.digest,
        attempt=asked.attempt,
        decision=decision,
        by=by,
        reason=reason,
    )
    return _said(decided, asked)


def _the_one(pending: list[Approval], run: int, step: str | None) -> Approval:
    """Return the question that is meant.

    Raises
    ------
    WishRefused
        There is none, or more than one.
    """
    meant = [one for one in pending if step is None or one.step_key == step]
    if not meant:
        about = f" about step {step}" if step else ""
        raise WishRefused(f"run {run} has no open question{about}")
    if len(meant) > 1:
        steps = ", ".join(one.step_key for one in meant)
        raise WishRefused(f"run {run} has {len(meant)} open questions: name a step of {steps}")
    return meant[0]


def _said(decided: Decided, asked: Approval) -> str:
    answer = decided.answer
    if decided.outcome in (Deciding.DECIDED, Deciding.ALREADY_DECIDED) and answer:
        return f"{asked.step_key} {answer.decision.name.lower()} by {answer.by}"
    if decided.outcome is Deciding.TAKEN and answer:
        raise WishRefused(
            f"{asked.step_key} was {answer.decision.name.lower()} by {answer.by} before"
        )
    if decided.outcome is Deciding.EXPIRED:
        raise WishRefused(f"the question about {asked.step_key} has expired")
    raise WishRefused(f"the question about {asked.step_key} is not open any more")


def _shown(one: Approval) -> str:
    shown = msgspec.json.decode(unpack(one.question))
    arguments = msgspec.json.encode(shown.get("arguments")).decode()
    until = f"  until {one.expires_at:%Y-%m-%dT%H:%M:%SZ}" if one.expires_at else ""
    note = f"  {shown['note']}" if "note" in shown else ""
    return f"{one.run_id}  {one.step_key}  {one.tool} {arguments}  {one.digest}{until}{note}"


async def _must_be_live(conn: Connection, run: RunId) -> None:
    now = await redrive.standing(conn, run)
    if not now.there:
        raise _unknown(run)
    if now.live is None:
        raise WishRefused(f"run {run} has ended")


def _unknown(run: int) -> WishRefused:
    return WishRefused(f"there is no run {run}")


async def _until_done(ask: Callable[[], Awaitable[list[RunId]]]) -> bool:
    """Ask again until it is done or patience ends."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while not await ask():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_AGAIN_SECONDS)
    return True


def _do(run: int, ask: Callable[[Connection], Coroutine[Any, Any, str]]) -> None:
    with one_line_errors():
        typer.echo(f"run {run}: {asyncio.run(_with_store(ask))}")


async def _with_store(use: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    conn = await Connection.open(database_url(load(DatabaseSettings)), name="cli")
    try:
        return await use(conn)
    finally:
        await conn.close()
