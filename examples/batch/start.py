"""Send the invoices of a month: start a run for each, wait for all, say what came of it.

    python -m batch.start                              300 invoices for 12 customers
    python -m batch.start --month 2026-10 --invoices 2000

Call it as often as you like, also after Ctrl-C: an invoice of a month is one run, whoever asks.
Exit codes: 0 all are sent, 1 some are not, 130 after Ctrl-C. ROWLOCK_DATABASE_URL says where.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from batch.agent import Invoice, Sent, invoice
from rowlock import Client, RowlockError, RunEnded, RunHandle

_CUSTOMERS = 12
_AT_ONCE = 2


@dataclass(slots=True)
class Summary:
    """What came of all runs."""

    started: int = 0
    known: int = 0
    cents: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    #: What went wrong, by the invoice's number.
    failed: dict[int, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return it for people."""
        sent = f"{self.sent.total()} invoices sent to {len(self.sent)} customers"
        return [
            f"{self.started} runs started, {self.known} were there already",
            f"{sent}, {self.cents / 100:,.2f} EUR",
            *(f"not sent: invoice {number}: {why}" for number, why in sorted(self.failed.items())),
        ]


def invoices(count: int) -> list[Invoice]:
    """Return the month's invoices, made up from their number."""
    return [
        Invoice(
            number=number,
            customer=f"customer-{number % _CUSTOMERS + 1}",
            hours=number * 7 % 61,
        )
        for number in range(1, count + 1)
    ]


async def begin(client: Client, month: str, tasks: Sequence[Invoice]) -> list[RunHandle[Sent]]:
    """Start a run for each invoice, unless it has one."""
    await client.set_caps(invoice, max_running_per_key=_AT_ONCE)
    return await client.start_many(
        invoice,
        tasks,
        keys=[task.customer for task in tasks],
        idempotency_keys=[f"invoice/{month}/{task.number}" for task in tasks],
    )


async def finish(
    tasks: Sequence[Invoice], runs: Sequence[RunHandle[Sent]], progress: Progress
) -> Summary:
    """Wait for all runs, each shown as it ends."""
    known = sum(not run.created for run in runs)
    summary = Summary(started=len(runs) - known, known=known)
    bar = progress.add_task("invoices", total=len(runs))

    async def one(task: Invoice, run: RunHandle[Sent]) -> None:
        try:
            sent = await run.wait()
        except RunEnded as error:
            summary.failed[task.number] = f"run {run.id}: {error.detail}"
        else:
            summary.sent[task.customer] += 1
            summary.cents += sent.cents
        progress.advance(bar)

    async with asyncio.TaskGroup() as group:
        for task, run in zip(tasks, runs, strict=True):
            group.create_task(one(task, run))
    return summary


async def main(month: str, count: int) -> int:
    """Do the whole; return the exit code."""
    tasks = invoices(count)
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    async with Client() as client:
        runs = await begin(client, month, tasks)
        with bar:
            summary = await finish(tasks, runs, bar)
    print("\n".join(summary.lines()))
    return 1 if summary.failed else 0


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        "python -m batch.start",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--month", default="2026-11")
    parser.add_argument("--invoices", type=int, default=300)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parse()
    try:
        sys.exit(asyncio.run(main(given.month, given.invoices)))
    except RowlockError as problem:
        sys.exit(f"batch: {problem}")
    except KeyboardInterrupt:
        print("batch: the runs go on; start it again to wait for them", file=sys.stderr)
        sys.exit(130)
