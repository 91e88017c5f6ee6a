"""A MariaDB and a MySQL for the tests of this folder, and the captured changes of a table there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from database_server import DatabaseServer
from sql_servers import MARIADB, MYSQL

from tianzhou.pipelines.binlog.captured import BinlogDecoder, Captured
from tianzhou.pipelines.binlog.database import Server
from tianzhou.pipelines.binlog_changes import Change

_numbers = itertools.count()


class Seen:
    """The changes that capturing a table finds from now on.

    Args:
        reading: the server.
        name: name of the table in the schema shop.
    """

    def __init__(self, reading: Server, name: str) -> None:
        self.reading = reading
        self.name = f"shop.{name}"
        self.where = ("shop", name)
        self.start = reading.files()[-1]

    @property
    def table(self) -> Captured:
        return self.reading.captured([self.where])[self.where]

    def changes(self) -> list[Change]:
        """Return the changes in the binlog."""
        return self.changes_of(self.table)

    def changes_of(self, table: Captured) -> list[Change]:
        """Return the changes in the binlog for a reader with an earlier definition of the table."""
        reader = BinlogDecoder({self.where: table})
        return [
            change
            for event, file, offset in self.reading.events(*self.start, 7)
            for change in reader.changes(event, file, offset)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table."""
        return list(self.reading.rows(self.table, self.reading.files()[-1]))


@pytest.fixture(scope="session", params=[MARIADB, MYSQL])
def database(request, tmp_path_factory) -> Iterator[DatabaseServer]:
    """Yield a server of each product; a test of one product's feature names the product by `indirect`."""
    # The server's zone is not UTC, as in many installations.
    made = request.param(tmp_path_factory.mktemp("database"), "--default-time-zone=+08:00")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def reading(database) -> Server:
    return Server("127.0.0.1", database.port, "repl", "secret")


@pytest.fixture
def made(database, reading) -> Callable[..., Seen]:
    """Return a function that creates a table with a primary key and the given columns."""

    def make(definition: str, *, key: str = "id INT PRIMARY KEY") -> Seen:
        name = f"types{next(_numbers)}"
        columns = ", ".join(part for part in (key, definition) if part)
        database.do("SET sql_mode = ''", f"CREATE TABLE shop.{name} ({columns})")
        return Seen(reading, name)

    return make
