"""`DatabaseIds`: ids of processed messages in the database of the work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tianzhou.client.consumer.once.dbapi import DbapiDatabase
from tianzhou.client.consumer.once.id_rows import AsyncIdRows, BlockingIdRows
from tianzhou.client.consumer.once.id_table import Dialect, IdTable
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tianzhou.client.consumer.once.engines import AsyncEngineDatabase, EngineDatabase


class DatabaseIds:
    """Ids of processed messages, as rows of the database in which the work is done; for `once`.

        ids = DatabaseIds(create_engine("postgresql+psycopg://shop@db/shop"))
        ids = DatabaseIds(create_async_engine("postgresql+psycopg://shop@db/shop"))      # for `async def` handlers
        ids = DatabaseIds(lambda: sqlite3.connect("shop.db"))                             # or of psycopg, pymysql

    At the first message the table is created when it is missing, and a probe checks that a roll-back removes a row.

    Args:
        database: an `Engine` or `AsyncEngine` of SQLAlchemy 2, a URL of SQLAlchemy (with an async driver, such as
            `postgresql+psycopg_async`, for `async def`), or a function that returns a DB-API connection of sqlite3,
            psycopg 3 or PyMySQL. The function is called for each call of a handler, and the connection is closed
            afterwards.
        table: name of the table of ids, with a schema before a dot where it is in one. It has to be in the database of
            the work.
        create: whether to create the table when it is missing.

    Raises:
        ConfigError: `database` is none of these, its SQL is not known, a package is missing, or `table` is no plain
            name.
    """

    def __init__(
        self, database: str | Engine | AsyncEngine | Callable[[], Any], *, table: str = "processed_messages",
        create: bool = True,
    ) -> None:  # fmt: skip
        self.name = table
        IdTable(Dialect.SQLITE, table)  # reject a wrong name before the first message
        self.rows: BlockingIdRows | AsyncIdRows
        engine = _engine_of(database)
        if engine is None:
            if not callable(database):
                raise ConfigError(
                    f"DatabaseIds got {database!r}; give an engine or a URL of SQLAlchemy, or a function that returns "
                    "a connection of sqlite3, psycopg or pymysql"
                )
            self.rows = BlockingIdRows(DbapiDatabase(database), table, create=create)
        elif engine.is_async:
            self.rows = AsyncIdRows(engine, table, create=create)
        else:
            self.rows = BlockingIdRows(engine, table, create=create)


def _engine_of(database: object) -> EngineDatabase | AsyncEngineDatabase | None:
    if isinstance(database, str):
        try:
            from tianzhou.client.consumer.once.engines import database_of_url

            return database_of_url(database)
        except ImportError as error:
            raise ConfigError(
                f"DatabaseIds: a package for the database is not installed ({error}): pip install tianzhou[database] "
                "has SQLAlchemy, psycopg and PyMySQL; install other drivers by their own names"
            ) from error
    # An engine exists only in a program that has imported SQLAlchemy.
    if "sqlalchemy" not in sys.modules:
        return None
    from tianzhou.client.consumer.once.engines import database_of_engine

    return database_of_engine(database)
