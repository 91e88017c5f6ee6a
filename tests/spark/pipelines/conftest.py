"""A MariaDB and a MySQL for the tests of the pipelines that read a database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from database_server import DatabaseServer
from sql_servers import MARIADB, MYSQL


@pytest.fixture(scope="session", params=[MARIADB, MYSQL])
def database(request, tmp_path_factory) -> Iterator[DatabaseServer]:
    # The server's zone is not UTC, as many are not.
    made = request.param(tmp_path_factory.mktemp("database"), "--default-time-zone=+08:00")
    yield made
    made.stop()
