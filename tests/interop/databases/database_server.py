"""A database server of MySQL's family for a test file, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

pymysql = pytest.importorskip("pymysql", reason="pip install 'tianzhou[cdc]'")
START_S = 60.0
PAUSE_S = 0.1


class DatabaseServer(ABC):
    """A server of its own in a folder, on loopback, with the schema `shop` and the user `repl`.

    Args:
        folder: an empty folder.
        settings: further settings of the server.
    """

    name: str
    """The product."""
    grants: str
    """Privileges that `pipeline cdc` needs, as its page names them."""
    position_statement: str
    """The statement whose first column is the binlog's current file."""
    reset_statement: str
    """The statement that deletes all files of the binlog and begins with number 1 again."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self._folder = folder
        user = ["--user=root"] if os.geteuid() == 0 else []
        self._install(user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [*self._command(), "--no-defaults", f"--datadir={folder}/data", f"--socket={folder}/socket",
             f"--pid-file={folder}/pid", "--bind-address=127.0.0.1", f"--port={self.port}", "--server-id=1",
             "--log-bin=bin", "--binlog-row-metadata=FULL", "--skip-name-resolve",
             "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0", *self._settings(),
             *settings, *user],
            stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"),
        )  # fmt: skip
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(pymysql.MySQLError):
                self._connection = self._connect()
                break
            assert self._process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(PAUSE_S)
        self.do("CREATE DATABASE shop")
        self.do("CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'secret'")
        self.do(f"GRANT {self.grants} ON *.* TO repl@'127.0.0.1'")

    @abstractmethod
    def _install(self, user: list[str]) -> None:
        """Create the folder `data`, where root may log in without a password from 127.0.0.1."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the words that start the program."""

    def _settings(self) -> list[str]:
        """Return the settings that this product alone needs."""
        return []

    def _connect(self) -> Any:
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", charset="utf8mb4", autocommit=True)

    def reconnect(self) -> None:
        """Begin another session, with the server's settings."""
        self._connection.close()
        self._connection = self._connect()
        self.do("SET sql_mode = ''")

    def do(self, *statements: str) -> list[tuple]:
        """Run statements; the rows of the last one."""
        rows: list[tuple] = []
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def insert(self, table: str, rows: list[tuple]) -> None:
        """Insert rows by one statement."""
        places = ", ".join(["%s"] * len(rows[0]))
        with self._connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def newest_file(self) -> str:
        """The binlog's present file."""
        return str(self.do(self.position_statement)[0][0])

    def stop(self) -> None:
        self._connection.close()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
