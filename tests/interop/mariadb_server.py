"""A MariaDB of Debian's for a test file, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

pymysql = pytest.importorskip("pymysql", reason="pip install 'tianzhou[cdc]'")
SERVER = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
INSTALL = shutil.which("mariadb-install-db")
needs_mariadb = pytest.mark.skipif(not SERVER or not INSTALL, reason="no MariaDB: apt-get install mariadb-server")


class MariaDB:
    """A server of its own in a folder, on loopback.

    Args:
        folder: an empty folder.
        settings: further settings of the server.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self._folder = folder
        user = ["--user=root"] if os.geteuid() == 0 else []
        subprocess.run(
            [INSTALL, "--no-defaults", f"--datadir={folder}/data", "--auth-root-authentication-method=normal",
             "--skip-test-db", *user],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [SERVER, "--no-defaults", f"--datadir={folder}/data", f"--socket={folder}/socket",
             f"--pid-file={folder}/pid", "--bind-address=127.0.0.1", f"--port={self.port}", "--server-id=1",
             "--log-bin=bin", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--skip-name-resolve",
             "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0", *settings, *user],
            stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"),
        )  # fmt: skip
        for _ in range(300):
            with contextlib.suppress(pymysql.MySQLError):
                self._connection = self._connect()
                break
            assert self._process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        else:
            raise AssertionError((folder / "log").read_text())
        self.do("CREATE DATABASE shop")
        self.do("CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'secret'")
        self.do("GRANT REPLICATION SLAVE, BINLOG MONITOR, SELECT ON *.* TO repl@'127.0.0.1'")

    def _connect(self):
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

    def stop(self) -> None:
        self._connection.close()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
