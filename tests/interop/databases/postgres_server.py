"""A PostgreSQL of Debian's for a test file, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from waiting import until

psycopg = pytest.importorskip("psycopg", reason="pip install 'tianzhou[database]'")
FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True)
PROGRAMS = next((folder for folder in FOLDERS if (folder / "initdb").exists()), None)
USERS = ("postgres", "nobody")


def server_user() -> str | None:
    """Return the user that the server runs as: PostgreSQL refuses root. None for this process's own user."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in USERS if name in known)


needs_postgresql = pytest.mark.skipif(PROGRAMS is None, reason="no PostgreSQL: apt-get install postgresql")


class PostgreSQL:
    """A server of its own in a folder that its user can reach, on loopback. Its tables are lost by a power failure."""

    def __init__(self) -> None:
        # The folders of pytest belong to root and are closed to other users.
        self._folder = Path(tempfile.mkdtemp(prefix="postgresql-", dir="/tmp"))
        self._user = server_user()
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._run(
            "initdb", "-D", f"{self._folder}/data", "-U", "shop", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        assert PROGRAMS is not None
        self._log = self._folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [PROGRAMS / "postgres", "-D", f"{self._folder}/data", "-p", str(self.port), "-h", "127.0.0.1",
                 "-k", str(self._folder), "-c", "fsync=off", "-c", "max_connections=60", "-c", "shared_buffers=16MB"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", user=self._user,
            )  # fmt: skip
        until(self._made_database, "PostgreSQL serves", within_s=60, every_s=0.1)

    def _made_database(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(self._log.read_text())
        with contextlib.suppress(psycopg.OperationalError), self.connect("postgres") as connection:
            connection.autocommit = True
            connection.execute("CREATE DATABASE shop")
            return True
        return False

    def _run(self, program: str, *words: str) -> None:
        assert PROGRAMS is not None
        done = subprocess.run(
            [PROGRAMS / program, *words], capture_output=True, timeout=120, cwd="/", user=self._user, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout

    def connect(self, database: str = "shop", **options: object) -> psycopg.Connection:
        """Return a connection of the superuser."""
        return psycopg.connect(f"postgresql://shop@127.0.0.1:{self.port}/{database}", **options)

    def stop(self) -> None:
        # A fast shutdown: it closes open connections.
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder)
