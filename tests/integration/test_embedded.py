"""The embedded PostgreSQL behaves as a server of one's own should."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import asyncpg
import pytest

from rowlock.embedded import EmbeddedPostgres


async def test_keeps_its_data_and_port_over_a_crash() -> None:
    """After kill -9 and a start, the same URL serves the same rows: durability is on."""
    with EmbeddedPostgres() as server:
        url = server.url()
        before = await asyncpg.connect(url)
        await before.execute("CREATE TABLE kept AS SELECT 7 AS n")
        server.restart(signal.SIGKILL)

        after = await asyncpg.connect(url)

        assert await after.fetchval("SELECT n FROM kept") == 7
        assert await after.fetchval("SHOW synchronous_commit") == "on"
        assert await after.fetchval("SHOW fsync") == "on"
        before.terminate()
        await after.close()


async def test_refuses_a_wrong_password() -> None:
    """The password in the URL is asked for, so no other user of the machine gets in."""
    with EmbeddedPostgres() as server:
        wrong = server.url().replace(":", ":not-", 2).replace("not-//", "//", 1)

        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(wrong)


def test_ends_with_the_process_that_started_it() -> None:
    """A killed demo or test session leaves no server behind."""
    code = (
        "import sys; from rowlock.embedded import EmbeddedPostgres\n"
        "server = EmbeddedPostgres().start(); print(server.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        server = os.pidfd_open(int(owner.stdout.readline()))

        owner.kill()

        poll = select.poll()
        poll.register(server, select.POLLIN)
        assert poll.poll(15_000), "the server still runs 15 s after its owner was killed"
        os.close(server)
