"""One MariaDB for the tests of the pipelines that read a database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mariadb_server import MariaDB


@pytest.fixture(scope="session")
def database(tmp_path_factory) -> Iterator[MariaDB]:
    # The server's zone is not UTC, as many are not.
    made = MariaDB(tmp_path_factory.mktemp("mariadb"), "--default-time-zone=+08:00")
    yield made
    made.stop()
