"""Transactions of DB-API connections: sqlite3, psycopg 3 and PyMySQL."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from tianzhou.client.consumer.once.id_table import Dialect, StatementOutcome, StatementStep, TransactionEnd, in_pyformat
from tianzhou.client.consumer.once.transactions import ended_by_handler
from tianzhou.errors import ConfigError

DRIVERS = {"sqlite3": Dialect.SQLITE, "psycopg": Dialect.POSTGRESQL, "pymysql": Dialect.MYSQL}
"""Dialects by the package of a connection's class."""
SERVER_STATUS_IN_TRANS = 1
"""Flag of MySQL's protocol: the session has an open transaction."""


class ConnectionOfOnce:
    """The connection that the handler gets; it rejects calls that end the transaction.

    Args:
        connection: the driver's connection.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        object.__setattr__(self, "_connection", connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in {"autocommit", "isolation_level"}:  # sqlite3 commits when one of them is set
            raise ended_by_handler(f"{name} = {value!r}")
        setattr(self._connection, name, value)

    def commit(self) -> NoReturn:
        """Reject the call; see `ended_by_handler`."""
        raise ended_by_handler("commit()")

    def rollback(self) -> NoReturn:
        """Reject the call; see `ended_by_handler`."""
        raise ended_by_handler("rollback()")

    def begin(self) -> NoReturn:
        """Reject the call, because PyMySQL's BEGIN commits the transaction before it."""
        raise ended_by_handler("begin()")

    def executescript(self, _script: str) -> NoReturn:
        """Reject the call, because sqlite3 commits before it runs a script."""
        raise ended_by_handler("executescript()")

    def close(self) -> NoReturn:
        """Reject the call; see `ended_by_handler`."""
        raise ended_by_handler("close()")

    def __enter__(self) -> NoReturn:
        raise ended_by_handler("`with connection`, which commits,")

    def __exit__(self, *_: object) -> None:
        """Do nothing, because `__enter__` raises."""


class DbapiTransaction:
    """A transaction of a DB-API connection; see `Transaction`.

    Args:
        connection: a connection of one of the `DRIVERS`.
        driver: name of its package.
    """

    def __init__(self, connection: Any, driver: str) -> None:
        self._raw = connection
        self._driver = driver
        self.connection = ConnectionOfOnce(connection)
        self.is_over = False

    def execute(self, step: StatementStep | TransactionEnd) -> StatementOutcome:
        """See `Transaction.execute`."""
        if isinstance(step, TransactionEnd):
            self._raw.commit() if step is TransactionEnd.COMMIT else self._raw.rollback()
            return StatementOutcome()
        sql = step.sql if self._driver == "sqlite3" else in_pyformat(step.sql)
        cursor = self._raw.cursor()
        try:
            cursor.execute(sql, dict(step.values)) if step.values else cursor.execute(sql)
            rows = tuple(tuple(row) for row in cursor.fetchall()) if cursor.description is not None else ()
            return StatementOutcome(cursor.rowcount, rows)
        except Exception as error:
            if step.may_collide and isinstance(error, importlib.import_module(self._driver).IntegrityError):
                return StatementOutcome(collision=error)
            raise
        finally:
            cursor.close()

    def commit(self) -> None:
        """See `Transaction.commit`."""
        if not _is_open(self._raw, self._driver):
            # It is too late for this message: its id and a part of the work are committed.
            raise ended_by_handler("COMMIT or ROLLBACK in SQL, or a statement that commits,")
        self._raw.commit()
        self.is_over = True


class DbapiDatabase:
    """Connections of a function; see `BlockingDatabase`.

    Args:
        connect: returns a connection without an open transaction. It is called for each call of a handler. The
            connection is closed afterwards, which returns it to its pool if it has one.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._dialect: Dialect | None = None

    @property
    def dialect(self) -> Dialect:
        """See `BlockingDatabase.dialect`."""
        if self._dialect is None:
            connection = self._connect()
            self._dialect = DRIVERS[driver_of(connection)]
            connection.close()
        return self._dialect

    @contextlib.contextmanager
    def begin(self) -> Iterator[DbapiTransaction]:
        """See `BlockingDatabase.begin`."""
        connection = self._connect()
        try:
            transaction = DbapiTransaction(connection, driver_of(connection))
            try:
                yield transaction
            finally:
                if not transaction.is_over:
                    # A lost connection cannot roll back, but its server does. The error of the work is more useful.
                    with contextlib.suppress(Exception):
                        connection.rollback()
        finally:
            connection.close()


def _is_open(connection: Any, driver: str) -> bool:
    """Whether the transaction that inserted the ids is open."""
    if driver == "sqlite3":
        return bool(connection.in_transaction)
    if driver == "psycopg":
        return bool(connection.info.transaction_status)  # 0 is IDLE
    return bool(connection.server_status & SERVER_STATUS_IN_TRANS)


def driver_of(connection: Any) -> str:
    """Return the name of the package of a connection's class.

    Raises:
        ConfigError: it is none of the `DRIVERS`.
    """
    for base in type(connection).__mro__:
        package = base.__module__.partition(".")[0]
        if package in DRIVERS:
            return package
    raise ConfigError(
        f"DatabaseIds: the function returned {connection!r}; it has to return a connection of {', '.join(DRIVERS)}. "
        "Give an engine of SQLAlchemy for other drivers"
    )
