"""Transactions of SQLAlchemy's engines, blocking and async. Imported only by programs that use SQLAlchemy."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from sqlalchemy import Connection, CursorResult, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tianzhou.client.consumer.once.id_table import Dialect, StatementOutcome, StatementStep, TransactionEnd
from tianzhou.client.consumer.once.transactions import ended_by_handler
from tianzhou.errors import ConfigError

DIALECTS = {
    "sqlite": Dialect.SQLITE,
    "postgresql": Dialect.POSTGRESQL,
    "mysql": Dialect.MYSQL,
    "mariadb": Dialect.MYSQL,
}
"""Dialects by SQLAlchemy's names."""


class _TransactionGuard:
    """Guard of a transaction: it rejects calls of the handler that would end the transaction of its message's id."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._at_work = True
        self._has_ended = False
        self._transaction = connection.begin()
        event.listen(connection, "commit", self._commit)
        event.listen(connection, "rollback", self._roll_back)

    def _commit(self, _: Connection) -> None:
        if self._at_work:
            self._reset()
            raise ended_by_handler("commit()")

    def _roll_back(self, _: Connection) -> None:
        if self._at_work:
            self._reset()
            raise ended_by_handler("rollback()")

    def _reset(self) -> None:
        """Roll back by the driver.

        After a failed COMMIT, SQLAlchemy counts the transaction as ended and returns the connection to the pool without
        a roll-back. The next user of the connection would commit the rows.
        """
        with contextlib.suppress(Exception):  # a lost connection cannot roll back, and its server does
            self._connection.connection.rollback()

    def commit(self) -> None:
        """Commit, unless the handler has ended the transaction."""
        if not self._transaction.is_active:
            # The handler caught the error of its own commit or rollback.
            raise ended_by_handler("commit() or rollback()")
        self._at_work = False
        try:
            self._transaction.commit()
        except BaseException:
            self._reset()
            raise

    def end(self) -> None:
        """Allow the end of the transaction. A second call has no effect."""
        self._at_work = False
        if self._has_ended:
            return
        self._has_ended = True
        event.remove(self._connection, "commit", self._commit)
        event.remove(self._connection, "rollback", self._roll_back)


def _outcome(result: CursorResult[Any]) -> StatementOutcome:
    rows = tuple(tuple(row) for row in result.all()) if result.returns_rows else ()
    return StatementOutcome(result.rowcount, rows)


def _execute(connection: Connection, step: StatementStep) -> StatementOutcome:
    # Without the option SQLAlchemy may close the cursor of an INSERT before its row count is read.
    statement = text(step.sql).execution_options(preserve_rowcount=True)
    try:
        return _outcome(connection.execute(statement, dict(step.values)))
    except IntegrityError as error:
        if step.may_collide:
            return StatementOutcome(collision=error)
        raise


def dialect_of(engine: Engine) -> Dialect:
    """Return the dialect of an engine.

    Raises:
        ConfigError: its SQL is not known.
    """
    known = DIALECTS.get(engine.dialect.name)
    if known is None:
        raise ConfigError(
            f"DatabaseIds: the engine's database is {engine.dialect.name}; @once knows {', '.join(sorted(DIALECTS))}"
        )
    return known


class EngineTransaction:
    """A transaction of an `Engine`; see `Transaction`.

    Args:
        connection: a connection whose transaction has begun.
        guard: guard of the same connection.
    """

    def __init__(self, connection: Connection, guard: _TransactionGuard) -> None:
        self.connection = connection
        self._guard = guard

    def execute(self, step: StatementStep | TransactionEnd) -> StatementOutcome:
        """See `Transaction.execute`."""
        if isinstance(step, TransactionEnd):
            self._guard.end()
            self.connection.commit() if step is TransactionEnd.COMMIT else self.connection.rollback()
            return StatementOutcome()
        return _execute(self.connection, step)

    def commit(self) -> None:
        """See `Transaction.commit`."""
        self._guard.commit()


class EngineDatabase:
    """Connections of an `Engine`; see `BlockingDatabase`."""

    is_async: Literal[False] = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.dialect = dialect_of(engine)

    @contextlib.contextmanager
    def begin(self) -> Iterator[EngineTransaction]:
        """See `BlockingDatabase.begin`."""
        with self._engine.connect() as connection:
            guard = _TransactionGuard(connection)
            try:
                yield EngineTransaction(connection, guard)
            finally:
                guard.end()


class AsyncEngineTransaction:
    """A transaction of an `AsyncEngine`; see `AsyncTransaction`.

    Args:
        connection: a connection whose transaction has begun.
        guard: guard of the same connection.
    """

    def __init__(self, connection: AsyncConnection, guard: _TransactionGuard) -> None:
        self.connection = connection
        self._guard = guard

    async def execute(self, step: StatementStep | TransactionEnd) -> StatementOutcome:
        """See `Transaction.execute`."""
        if isinstance(step, TransactionEnd):
            self._guard.end()
            await (self.connection.commit() if step is TransactionEnd.COMMIT else self.connection.rollback())
            return StatementOutcome()
        return await self.connection.run_sync(_execute, step)

    async def commit(self) -> None:
        """See `Transaction.commit`."""
        await self.connection.run_sync(lambda _: self._guard.commit())


class AsyncEngineDatabase:
    """Connections of an `AsyncEngine`; see `AsyncDatabase`."""

    is_async: Literal[True] = True

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self.dialect = dialect_of(engine.sync_engine)

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncEngineTransaction]:
        """See `AsyncDatabase.begin`."""
        async with self._engine.connect() as connection:
            guard = await connection.run_sync(_TransactionGuard)
            try:
                yield AsyncEngineTransaction(connection, guard)
            finally:
                guard.end()


def database_of_engine(engine: object) -> EngineDatabase | AsyncEngineDatabase | None:
    """Return the database of an engine; None for any other object."""
    if isinstance(engine, AsyncEngine):
        return AsyncEngineDatabase(engine)
    return EngineDatabase(engine) if isinstance(engine, Engine) else None


def database_of_url(url: str) -> EngineDatabase | AsyncEngineDatabase:
    """Return the database of a URL, with an engine of its own that tests idle connections before it uses them.

    Raises:
        ImportError: the driver is not installed.
        ConfigError: the URL cannot be read, or its SQL is not known.
    """
    try:
        if make_url(url).get_dialect().is_async:
            return AsyncEngineDatabase(create_async_engine(url, pool_pre_ping=True))
        return EngineDatabase(create_engine(url, pool_pre_ping=True))
    except ArgumentError as error:
        raise ConfigError(
            f"DatabaseIds: the URL cannot be used ({error}); write it as in sqlite:///shop.db or "
            "postgresql+psycopg://user@host/database"
        ) from error
