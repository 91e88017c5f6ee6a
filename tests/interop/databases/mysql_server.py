"""A MySQL for a test file, in a folder of its own."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess

import pytest
from database_server import DatabaseServer

VARIABLE = "TIANZHOU_TEST_MYSQLD"
"""The command that starts a `mysqld` which is not on the path; it may have several words."""


def _found() -> list[str]:
    """Return the command of a `mysqld`; empty without one. MariaDB installs its own program under this name."""
    if VARIABLE in os.environ:
        return shlex.split(os.environ[VARIABLE])
    program = shutil.which("mysqld") or shutil.which("mysqld", path="/usr/sbin")
    if program is None:
        return []
    version = subprocess.run([program, "--no-defaults", "--version"], capture_output=True, text=True, check=False)
    return [] if version.returncode or "MariaDB" in version.stdout else [program]


COMMAND = _found()
needs_mysql = pytest.mark.skipif(
    not COMMAND, reason=f"no MySQL: apt-get install mysql-server-core, or name the command in {VARIABLE}"
)


class MySQL(DatabaseServer):
    """A MySQL on loopback."""

    name = "MySQL"
    grants = "REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES, SELECT"

    @functools.cached_property
    def _version(self) -> tuple[int, ...]:
        ((version,),) = self.do("SELECT VERSION()")
        return tuple(int(part) for part in version.partition("-")[0].split("."))

    @property
    def position_statement(self) -> str:
        return "SHOW BINARY LOG STATUS" if self._version >= (8, 4) else "SHOW MASTER STATUS"

    @property
    def reset_statement(self) -> str:
        return "RESET BINARY LOGS AND GTIDS" if self._version >= (8, 4) else "RESET MASTER"

    def _install(self, user: list[str]) -> None:
        setup = self._folder / "setup.sql"
        setup.write_text(
            "CREATE USER root@'127.0.0.1' IDENTIFIED BY '';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        subprocess.run(
            [*COMMAND, "--no-defaults", "--initialize-insecure", f"--datadir={self._folder}/data",
             f"--init-file={setup}", *self._settings(), *user],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip

    def _command(self) -> list[str]:
        return COMMAND

    def _settings(self) -> list[str]:
        return ["--innodb-doublewrite=0", "--innodb-redo-log-capacity=8M", "--sync-binlog=0",
                "--performance-schema=OFF", "--mysqlx=OFF", "--secure-file-priv="]  # fmt: skip
