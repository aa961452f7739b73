"""How fast history reaches PostgreSQL."""

from __future__ import annotations

from rowlock import metrics as w

from .model import Dashboard, Query, a_minute, a_second, highest, lines, of_pool, stat, total

_ROWS = a_second(of_pool(w.WRITER_ROWS))
_BATCHES = a_second(of_pool(w.WRITER_BATCHES))

WRITER = Dashboard(
    "writer",
    "Writer",
    "How fast the history of runs reaches PostgreSQL: what a step waits for.",
    stats=(
        stat("Rows", "Rows committed.", "cps", _ROWS),
        stat(
            "Rows in a batch",
            "Rows that one commit carries.",
            "short",
            f"{_ROWS} / ({_BATCHES} > 0)",
        ),
        stat(
            "Rows that wait", "Rows not committed yet.", "short", total(of_pool(w.WRITER_WAITING))
        ),
        stat(
            "Days of partitions ahead",
            "Fewest days after today whose partitions are made:"
            " at 0 the next midnight stops all writing.",
            "short",
            f"min({of_pool(w.PARTITION_DAYS)})",
        ),
    ),
    lines=(
        lines(
            "Rows and batches",
            "Rows committed, and commits.",
            "cps",
            Query(_ROWS, "rows"),
            Query(_BATCHES, "batches"),
        ),
        lines(
            "Rows that wait, by process",
            "A rise that does not end means that PostgreSQL is slower than the steps.",
            "short",
            Query(
                total(of_pool(w.WRITER_WAITING), "instance", "process"), "{{instance}} {{process}}"
            ),
        ),
        lines(
            "Bytes that wait",
            "Memory that the rows hold meanwhile.",
            "bytes",
            Query(
                total(of_pool(w.WRITER_WAITING_BYTES), "instance", "process"),
                "{{instance}} {{process}}",
            ),
        ),
        lines(
            "Oldest row that waits",
            "A step goes on when its row is committed: this is what it waits for.",
            "s",
            Query(
                highest(of_pool(w.WRITER_OLDEST), "instance", "process"), "{{instance}} {{process}}"
            ),
        ),
        lines(
            "Slowest batch",
            "Since the last report of a process, retries included.",
            "s",
            Query(
                highest(of_pool(w.WRITER_SLOWEST), "instance", "process"),
                "{{instance}} {{process}}",
            ),
        ),
        lines(
            "Batches sent again",
            "PostgreSQL was away; nothing is lost by it.",
            "cpm",
            Query(a_minute(of_pool(w.WRITER_RETRIES)), "sent again"),
        ),
        lines(
            "Rows that can never be stored",
            "By SQLSTATE, since the workers started; the run of such a row fails.",
            "short",
            Query(total(of_pool(w.REJECTED_ROWS), "sqlstate"), "{{sqlstate}}"),
        ),
    ),
)
