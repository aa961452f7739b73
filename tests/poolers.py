"""A real PgBouncer in transaction mode, between a test and its server.

`PGBOUNCER` names another binary than the one on PATH, such as a newer one.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import pytest

_SECONDS = 20.0
#: From this version on it can keep track of prepared statements.
_TRACKS = (1, 21)


def binary() -> str:
    """Return the program, or skip the test."""
    # Debian puts it into /usr/sbin, which a user's PATH may lack.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    found = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer", path=path)
    if not found:
        pytest.skip("no pgbouncer here: apt-get install pgbouncer")
    return found


def tracks_prepared(program: str) -> bool:
    """Say whether this version knows `max_prepared_statements`."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    assert found, said
    return (int(found[1]), int(found[2])) >= _TRACKS


@contextlib.contextmanager
def pgbouncer(url: str, *, sessions: int, prepared: int | None) -> Iterator[str]:
    """Yield the URL of a PgBouncer before the database of `url`.

    Parameters
    ----------
    sessions
        How many sessions it may have with the server at once.
    prepared
        `max_prepared_statements`; None for a version that does not know it.
    """
    with tempfile.TemporaryDirectory(prefix="rowlock-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # it runs as nobody, who may not enter pytest's folders
        with _running(url, folder, sessions=sessions, prepared=prepared) as place:
            yield place


@contextlib.contextmanager
def _running(url: str, folder: Path, *, sessions: int, prepared: int | None) -> Iterator[str]:
    program, port = binary(), _free_port()
    config = _write_config(url, folder, port=port, sessions=sessions, prepared=prepared)
    log = (folder / "pgbouncer.log").open("wb")
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
    process = subprocess.Popen(
        [program, str(config)],
        stdout=log,
        stderr=log,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
    )
    try:
        _wait(process, port, folder / "pgbouncer.log")
        split = urlsplit(url)
        place = f"{split.username}:{split.password}@127.0.0.1:{port}"
        yield urlunsplit(split._replace(netloc=place))
    finally:
        process.kill()  # from 1.23 on it waits for its clients at SIGTERM
        process.wait(timeout=_SECONDS)
        log.close()


def _write_config(
    url: str, folder: Path, *, port: int, sessions: int, prepared: int | None
) -> Path:
    split = urlsplit(url)
    database = split.path.removeprefix("/")
    users = folder / "users.txt"
    users.write_text(f'"{split.username}" "{unquote(split.password or "")}"\n')
    users.chmod(0o644)
    lines = [
        "[databases]",
        f"{database} = host={split.hostname} port={split.port} dbname={database}",
        "[pgbouncer]",
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =",
        f"auth_type = scram-sha-256\nauth_file = {users}",
        "pool_mode = transaction",
        f"default_pool_size = {sessions}\nmax_client_conn = 500",
        *([] if prepared is None else [f"max_prepared_statements = {prepared}"]),
    ]
    config = folder / "pgbouncer.ini"
    config.write_text("\n".join(lines) + "\n")
    config.chmod(0o644)
    return config


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < deadline, log.read_text()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
