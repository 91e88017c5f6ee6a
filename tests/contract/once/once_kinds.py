"""The kinds of connections that `@once` supports, for `once_suite`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from tianzhou.client import ConsumeContext, DatabaseIds, once
from tianzhou.client.consumer.once.id_table import in_pyformat
from tianzhou.model import MessageExt, MessageQueue
from tianzhou.testing.clock import VirtualClock

Work = Callable[..., Any]
"""The work of a handler: gets the message, or the list of them, a function that executes SQL on the handler's
connection, and the handler's context.
"""
QUEUE = MessageQueue("T", "b", 0)
WINDOW_S = 3_600
_numbers = itertools.count()


def message(key: str) -> MessageExt:
    return MessageExt("T", b"x", 0, {"UNIQ_KEY": key}, "b", 0, 0, 0, 0, 0, "h", 0, "h", 0, 0, 1, 0, "O")


def insert(one: MessageExt, do: Callable[..., Any]) -> None:
    """Insert one row a message, the work of most tests."""
    do("INSERT INTO work (message) VALUES (:message)", message=one.msg_id)


def run_statement(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement in a transaction of its own, return its rows, and close the connection."""
    try:
        cursor = connection.cursor()
        cursor.execute(sql)
        rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        connection.commit()
        return rows
    finally:
        connection.close()


@dataclass
class Kind:
    """A kind of connection to one database.

    Attributes:
        connect: returns a DB-API connection, also for the test's own queries.
        make: returns the argument of `DatabaseIds`; by default `connect` itself.
        autocommit: returns the same with connections that commit each statement.
        is_async: whether handlers are coroutine functions.
        may_fail: whether the isolation level ends one of two concurrent transactions with an error.
    """

    connect: Callable[[], Any]
    autocommit: Callable[[], Any]
    make: Callable[[], Any] | None = None
    is_async: bool = False
    may_fail: bool = False
    clock: VirtualClock = field(default_factory=VirtualClock)
    table: str = field(default_factory=lambda: f"ids{next(_numbers)}")

    def __post_init__(self) -> None:
        self._made: list[Any] = []
        self._runner = asyncio.Runner()
        self.query("DROP TABLE IF EXISTS work")
        self.query("CREATE TABLE work (message VARCHAR(300))")

    def close(self) -> None:
        for made in self._made:
            if hasattr(made, "sync_engine"):
                self._runner.run(made.dispose())
            elif hasattr(made, "dispose"):
                made.dispose()
        self._runner.close()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own and return its rows."""
        return run_statement(self.connect(), sql)

    def done(self) -> list[str]:
        """Return the messages whose work is committed."""
        return sorted(row[0] for row in self.query("SELECT message FROM work"))

    def count_ids(self) -> int:
        """Return the number of rows in the table of ids."""
        return int(self.query(f"SELECT count(*) FROM {self.table}")[0][0])

    def database(self, *, autocommit: bool = False) -> Any:
        """Return the argument of `DatabaseIds`."""
        made = self.autocommit() if autocommit else self.connect if self.make is None else self.make()
        self._made.append(made)
        return made

    def store(self, *, autocommit: bool = False, **options: Any) -> DatabaseIds:
        return DatabaseIds(self.database(autocommit=autocommit), **{"table": self.table, **options})

    def handler(self, work: Work, ids: DatabaseIds | None = None, **options: Any) -> Callable[..., Any]:
        """Return a handler that does `work` on its connection; a coroutine function where the kind is async."""
        given = {"key": lambda one: one.msg_id, "window_s": WINDOW_S, "clock": self.clock} | options
        decorate = once(ids or self.store(), **given)
        if self.is_async:

            @decorate
            async def consume_async(argument: Any, connection: Any, context: Any) -> Any:
                def on(sync: Any) -> Any:
                    return work(argument, lambda sql, **values: sync.execute(text(sql), values), context)

                return await connection.run_sync(on)

            return consume_async

        @decorate
        def consume(argument: Any, connection: Any, context: Any) -> Any:
            return work(argument, lambda sql, **values: execute(connection, sql, values), context)

        return consume

    def call(self, handler: Callable[..., Any], argument: Any, context: ConsumeContext | None = None) -> Any:
        """Call a handler like a consumer."""
        context = context or ConsumeContext(QUEUE)
        if self.is_async:
            return self._runner.run(handler(argument, context))
        return handler(argument, context)

    def call_at_once(self, handlers: list[Callable[..., Any]], argument: Any) -> list[Any]:
        """Call handlers concurrently and return their results or errors."""
        context = ConsumeContext(QUEUE)
        if self.is_async:

            async def call_all() -> list[Any]:
                return await asyncio.gather(*(one(argument, context) for one in handlers), return_exceptions=True)

            return self._runner.run(call_all())

        def outcome(handler: Callable[..., Any]) -> Any:
            try:
                return handler(argument, context)
            except Exception as error:  # noqa: BLE001 - as `gather` does
                return error

        with ThreadPoolExecutor(len(handlers)) as pool:
            return list(pool.map(outcome, handlers))


def execute(connection: Any, sql: str, values: dict[str, Any]) -> None:
    """Execute SQL on the connection of a blocking handler."""
    if hasattr(connection, "dialect"):
        connection.execute(text(sql), values)
        return
    cursor = connection.cursor()
    try:
        is_sqlite = type(cursor).__module__ == "sqlite3"
        cursor.execute(sql if is_sqlite else in_pyformat(sql), values)
    finally:
        cursor.close()
