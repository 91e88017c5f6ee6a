"""The checks of `@once` with each kind of connection to a real PostgreSQL, MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from database_server import DatabaseServer
from once_kinds import Kind
from once_suite import CHECKS
from postgres_server import PostgreSQL, needs_postgresql
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    server = PostgreSQL()
    yield server
    server.stop()


def kinds_of_postgresql(server: PostgreSQL) -> dict[str, Callable[[], Kind]]:
    url = f"postgresql+psycopg://shop@127.0.0.1:{server.port}/shop"
    autocommit = {"isolation_level": "AUTOCOMMIT"}
    return {
        "psycopg": lambda: Kind(server.connect, lambda: lambda: server.connect(autocommit=True)),
        "Engine": lambda: Kind(
            server.connect, lambda: create_engine(url, **autocommit), lambda: create_engine(url, pool_size=8)
        ),
        "serializable": lambda: Kind(
            server.connect,
            lambda: create_engine(url, **autocommit),
            lambda: create_engine(url, pool_size=8, isolation_level="SERIALIZABLE"),
            may_fail=True,
        ),
        "AsyncEngine": lambda: Kind(
            server.connect,
            lambda: create_async_engine(url, **autocommit),
            lambda: create_async_engine(url, pool_size=8),
            is_async=True,
        ),
    }


def kinds_of_mysql(server: DatabaseServer) -> dict[str, Callable[[], Kind]]:
    dialect = server.name.lower()
    place = f"root@127.0.0.1:{server.port}/shop?charset=utf8mb4"

    def connect(**options: object) -> pymysql.Connection:
        return pymysql.connect(
            host="127.0.0.1", port=server.port, user="root", database="shop", charset="utf8mb4", **options
        )

    autocommit = {"isolation_level": "AUTOCOMMIT"}
    return {
        "pymysql": lambda: Kind(connect, lambda: lambda: connect(autocommit=True)),
        "Engine": lambda: Kind(
            connect,
            lambda: create_engine(f"mysql+pymysql://{place}", **autocommit),
            lambda: create_engine(f"mysql+pymysql://{place}", pool_size=8),
        ),
        "read committed": lambda: Kind(
            connect,
            lambda: create_engine(f"{dialect}+pymysql://{place}", **autocommit),
            lambda: create_engine(f"{dialect}+pymysql://{place}", pool_size=8, isolation_level="READ COMMITTED"),
        ),
        "AsyncEngine": lambda: Kind(
            connect,
            lambda: create_async_engine(f"mysql+aiomysql://{place}", **autocommit),
            lambda: create_async_engine(f"mysql+aiomysql://{place}", pool_size=8),
            is_async=True,
        ),
    }


CONCURRENT = {
    "of_deliveries_at_the_same_time_one_is_processed",
    "a_delivery_that_waits_for_one_that_fails_is_processed",
    "lists_with_the_same_messages_in_other_orders_do_not_deadlock",
}
"""Checks whose outcome depends on the isolation level."""


def pairs(levels: str, *names: str) -> list[Any]:
    """Return each check with each kind of connection, and those in `CONCURRENT` also with another isolation level."""
    found = [(check, name) for check in CHECKS for name in names]
    found += [(check, levels) for check in CHECKS if check.__name__ in CONCURRENT]
    return [pytest.param(check, name, id=f"{check.__name__}-{name}") for check, name in found]


@needs_postgresql
@pytest.mark.parametrize(("check", "name"), pairs("serializable", "psycopg", "Engine", "AsyncEngine"))
def test_once_with_postgresql(check: Callable[[Kind], None], name: str, postgresql: PostgreSQL) -> None:
    made = kinds_of_postgresql(postgresql)[name]()
    check(made)
    made.close()


@pytest.mark.parametrize(("check", "name"), pairs("read committed", "pymysql", "Engine", "AsyncEngine"))
def test_once_with_mariadb_and_mysql(check: Callable[[Kind], None], name: str, database: DatabaseServer) -> None:
    made = kinds_of_mysql(database)[name]()
    check(made)
    made.close()
