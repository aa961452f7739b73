"""Commands about one run: suspend, continue, cancel, approve, deny, retry.

Each writes a wish or an answer, into the database or into the run's object, and says what came of
it. Each may be repeated: what is done already is no error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer

from rowlock.commands.output import Output, document, write
from rowlock.commands.route import Flags, routed
from rowlock.commands.shapes import Answered, Name, QuestionShape
from rowlock.commands.sides import Answer, Side
from rowlock.commands.way import asked
from rowlock.states import Decision
from rowlock.terminal import me

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="The run's number; through the cluster, its AgentRun's name."
    ),
]
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
        app.command(name)(routed(command))


def suspend(flags: Flags, run: Run, by: By, reason: Reason = None, output: Output = "text") -> None:
    """Hold a run at its next step boundary until somebody continues it.

    \b
    Examples:
      rowlock suspend 2531771558 --reason "the provider is being moved"
      kubectl rowlock suspend order-7 -n team-a -o json
    """
    _do(flags, run, lambda side, name: side.suspend(name, by=by, reason=reason), output)


def continue_(flags: Flags, run: Run, output: Output = "text") -> None:
    """Let a suspended run go on.

    \b
    Examples:
      rowlock continue 2531771558
      kubectl rowlock continue order-7
    """
    _do(flags, run, lambda side, name: side.continue_(name), output)


def cancel(flags: Flags, run: Run, by: By, reason: Reason = None, output: Output = "text") -> None:
    """End a run, wherever it stands.

    \b
    Examples:
      rowlock cancel 2531771558 --reason "a typo in the order"
      kubectl rowlock cancel order-7
    """
    _do(flags, run, lambda side, name: side.cancel(name, by=by, reason=reason), output)


def retry(flags: Flags, run: Run, by: By, output: Output = "text") -> None:
    """Start another attempt of a run that has ended; finished steps are read back.

    Through the cluster it raises the AgentRun's spec.redrive by one.

    \b
    Examples:
      rowlock retry 2531771558
      kubectl rowlock retry order-7 -o json | jq .attempt
    """
    _do(flags, run, lambda side, name: side.retry(name, by=by), output)


def approve(
    flags: Flags,
    run: Run,
    by: By,
    step: Step = None,
    digest: Digest = None,
    reason: Reason = None,
    output: Output = "text",
) -> None:
    """Allow a tool call that waits for it.

    \b
    Examples:
      rowlock approve 2531771558                  if there is one question
      rowlock approve 2531771558 issue_refund:3.0  of several this one
      kubectl rowlock approve order-7
    """
    answer = Answer(Decision.APPROVED, by, reason or "", step, digest)
    _do(flags, run, lambda side, name: side.answer(name, answer), output)


def deny(
    flags: Flags,
    run: Run,
    by: By,
    reason: Annotated[str, typer.Option(help="Why; the model is told.")],
    step: Step = None,
    digest: Digest = None,
    output: Output = "text",
) -> None:
    """Forbid a tool call that waits; its model is told why.

    \b
    Examples:
      rowlock deny 2531771558 --reason "more than she paid"
      kubectl rowlock deny order-7 --reason "more than she paid"
    """
    answer = Answer(Decision.DENIED, by, reason, step, digest)
    _do(flags, run, lambda side, name: side.answer(name, answer), output)


def list_approvals(
    flags: Flags,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only of this run.")] = None,
    output: Output = "text",
) -> None:
    """List the questions that wait for a person, the oldest first.

    \b
    Examples:
      rowlock approvals                    of all runs
      rowlock approvals 2531771558 -o json  of one, for a program
      rowlock approvals -o name            the runs that wait
      kubectl rowlock approvals -n team-a  of the AgentRuns there
    """

    async def ask(side: Side) -> list[QuestionShape]:
        return await side.questions(None if run is None else side.name(run))

    found = asked(flags, ask)
    if output == "text":
        lines = [_shown(one) for one in found]
    elif output == "name":
        lines = list(dict.fromkeys(str(one.run) for one in found))
    else:
        lines = [document(found, output)]
    for line in lines:
        write(line)


def _shown(one: QuestionShape) -> str:
    arguments = "" if one.arguments is None else f" {msgspec.json.encode(one.arguments).decode()}"
    until = f"  until {one.expires_at:%Y-%m-%dT%H:%M:%SZ}" if one.expires_at else ""
    note = f"  {' '.join(one.note.split())}" if one.note else ""
    return f"{one.run}  {one.step}  {one.tool}{arguments}  {one.digest}{until}{note}"


def _do(
    flags: Flags, run: str, wish: Callable[[Side, Name], Awaitable[Answered]], output: str
) -> None:
    async def ask(side: Side) -> Answered:
        return await wish(side, side.name(run))

    done = asked(flags, ask)
    if output == "text":
        write(f"run {done.run}: {done.said}")
    elif output == "name":
        write(str(done.run))
    else:
        write(document(done, "yaml" if output == "yaml" else "json"))
