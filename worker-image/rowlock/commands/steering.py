"""Commands about one run: suspend, continue, cancel, approve, deny, retry.

Each writes a wish or an answer into the database and says what came of it.
Each may be repeated: what is done already is no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer

from rowlock.client import wishes
from rowlock.client.wishes import PendingApproval
from rowlock.commands.output import Output, document, write
from rowlock.errors import WishRefused
from rowlock.states import Decision
from rowlock.store.connection import Connection
from rowlock.store.types import RunId
from rowlock.terminal import me, one_line_errors, with_store

Run = Annotated[int, typer.Argument(metavar="RUN", help="The run's number.", min=1, max=2**63 - 1)]
By = Annotated[str, typer.Option("--by", default_factory=me, help="Who asks; default: you.")]
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
    """Hold a run at its next step boundary until somebody continues it.

    \b
    Examples:
      rowlock suspend 2531771558 --reason "the provider is being moved"
    """

    async def ask(conn: Connection) -> str:
        done = await wishes.suspend(conn, RunId(run), by=by, reason=reason)
        return "suspended" if done else "asked: it is held at its next step boundary"

    _do(run, ask)


def continue_(run: Run) -> None:
    """Let a suspended run go on.

    \b
    Examples:
      rowlock continue 2531771558
    """

    async def ask(conn: Connection) -> str:
        if await wishes.continue_(conn, RunId(run)):
            return "continues"
        raise WishRefused(f"run {run} is not suspended")

    _do(run, ask)


def cancel(run: Run, by: By, reason: Reason = None) -> None:
    """End a run, wherever it stands.

    \b
    Examples:
      rowlock cancel 2531771558 --reason "a typo in the order"
    """

    async def ask(conn: Connection) -> str:
        done = await wishes.cancel(conn, RunId(run), by=by, reason=reason)
        return "ended" if done else "asked: its worker is ending it"

    _do(run, ask)


def list_approvals(
    run: Annotated[int | None, typer.Argument(metavar="[RUN]", help="Only of this run.")] = None,
    output: Output = "text",
) -> None:
    """List the questions that wait for a person, the oldest first.

    \b
    Examples:
      rowlock approvals                    of all runs
      rowlock approvals 2531771558 -o json  of one, for a program
      rowlock approvals -o name            the runs that wait
    """
    with one_line_errors():
        only = None if run is None else RunId(run)
        found = asyncio.run(with_store(lambda conn: wishes.pending(conn, only)))
    if output == "text":
        lines = [_shown(one) for one in found]
    elif output == "name":
        lines = list(dict.fromkeys(str(one.run_id) for one in found))
    else:
        lines = [document(found, output)]
    for line in lines:
        write(line)


def approve(
    run: Run, by: By, step: Step = None, digest: Digest = None, reason: Reason = None
) -> None:
    """Allow a tool call that waits for it.

    \b
    Examples:
      rowlock approve 2531771558                  if there is one question
      rowlock approve 2531771558 issue_refund:3.0  of several this one
    """
    _do(run, lambda conn: _answer(conn, run, step, digest, Decision.APPROVED, by, reason or ""))


def deny(
    run: Run,
    by: By,
    reason: Annotated[str, typer.Option(help="Why; the model is told.")],
    step: Step = None,
    digest: Digest = None,
) -> None:
    """Forbid a tool call that waits; its model is told why.

    \b
    Examples:
      rowlock deny 2531771558 --reason "more than she paid"
    """
    _do(run, lambda conn: _answer(conn, run, step, digest, Decision.DENIED, by, reason))


def retry(run: Run, by: By) -> None:
    """Start another attempt of a run that has ended; finished steps are read back.

    \b
    Examples:
      rowlock retry 2531771558
    """

    async def ask(conn: Connection) -> str:
        return f"attempt {await wishes.retry(conn, RunId(run), by=by)} is queued"

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
    asked = await wishes.the_one(conn, RunId(run), step=step, digest=digest)
    await wishes.decide(conn, asked, decision, by=by, reason=reason)
    return f"{asked.step} {decision.name.lower()} by {by}"


def _shown(one: PendingApproval) -> str:
    arguments = msgspec.json.encode(one.arguments).decode()
    until = f"  until {one.expires_at:%Y-%m-%dT%H:%M:%SZ}" if one.expires_at else ""
    note = f"  {one.note}" if one.note else ""
    return f"{one.run_id}  {one.step}  {one.tool} {arguments}  {one.digest}{until}{note}"


def _do(run: int, ask: Callable[[Connection], Awaitable[str]]) -> None:
    with one_line_errors():
        write(f"run {run}: {asyncio.run(with_store(ask))}")
