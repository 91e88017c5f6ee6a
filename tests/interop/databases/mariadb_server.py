"""A MariaDB of Debian's for a test file, in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from database_server import DatabaseServer

SERVER = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
INSTALL = shutil.which("mariadb-install-db")
LOG_SIZE = "--innodb-log-file-size=8M"
"""The default of 96 MB is written in full when a server's folder is created."""
needs_mariadb = pytest.mark.skipif(not SERVER or not INSTALL, reason="no MariaDB: apt-get install mariadb-server")


class MariaDB(DatabaseServer):
    """A MariaDB on loopback."""

    name = "MariaDB"
    grants = "REPLICATION SLAVE, BINLOG MONITOR, SELECT"
    position_statement = "SHOW MASTER STATUS"
    reset_statement = "RESET MASTER"

    def _install(self, user: list[str]) -> None:
        subprocess.run(
            [INSTALL, "--no-defaults", f"--datadir={self._folder}/data", "--auth-root-authentication-method=normal",
             "--skip-test-db", LOG_SIZE, *user],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip

    def _command(self) -> list[str]:
        return [SERVER]

    def _settings(self) -> list[str]:
        return ["--binlog-format=ROW", LOG_SIZE]  # the default of the format is MIXED
