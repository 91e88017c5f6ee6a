"""Transactions, blocking or async, that execute the steps of `id_table`: the interface to databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

from tianzhou.client.consumer.once.id_table import Dialect, StatementOutcome, StatementStep, Steps, TransactionEnd
from tianzhou.errors import ClientError

T = TypeVar("T")


class Transaction(Protocol):
    """A transaction of a blocking connection. It is rolled back unless `commit` has returned."""

    @property
    def connection(self) -> Any:
        """The connection for the handler."""
        ...

    def execute(self, step: StatementStep | TransactionEnd) -> StatementOutcome:
        """Execute a statement, or end the transaction.

        Raises:
            Exception: the driver's error.
        """
        ...

    def commit(self) -> None:
        """Commit the ids and the work.

        Raises:
            Exception: the driver's error. Whether the transaction is committed is unknown after a lost connection.
        """
        ...


class AsyncTransaction(Protocol):
    """A transaction of an async connection. It is rolled back unless `commit` has returned."""

    @property
    def connection(self) -> Any:
        """The connection for the handler."""
        ...

    async def execute(self, step: StatementStep | TransactionEnd) -> StatementOutcome:
        """See `Transaction.execute`."""
        ...

    async def commit(self) -> None:
        """See `Transaction.commit`."""
        ...


class BlockingDatabase(Protocol):
    """A database in which any thread can begin transactions."""

    @property
    def dialect(self) -> Dialect:
        """The database's SQL.

        Raises:
            Exception: the driver's error when no connection can be made.
        """
        ...

    def begin(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction.

        Raises:
            Exception: the driver's error when no connection can be made.
        """
        ...


class AsyncDatabase(Protocol):
    """A database in which tasks of the event loop can begin transactions."""

    @property
    def dialect(self) -> Dialect:
        """The database's SQL."""
        ...

    def begin(self) -> AbstractAsyncContextManager[AsyncTransaction]:
        """See `BlockingDatabase.begin`."""
        ...


def run(steps: Steps[T], execute: Callable[[StatementStep | TransactionEnd], StatementOutcome]) -> T:
    """Execute steps one after the other and return their result.

    Raises:
        Exception: an error of a statement that the steps do not handle, or their own.
    """
    try:
        step = next(steps)
        while True:
            try:
                outcome = execute(step)
            except Exception as error:  # noqa: BLE001 - the steps decide which errors they handle
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(
    steps: Steps[T], execute: Callable[[StatementStep | TransactionEnd], Awaitable[StatementOutcome]]
) -> T:
    """Execute steps one after the other and return their result; see `run`."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = await execute(step)
            except Exception as error:  # noqa: BLE001 - the steps decide which errors they handle
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


def ended_by_handler(call: str) -> ClientError:
    """Return the error of a handler that ends the transaction of its message's id.

    Args:
        call: the call, as the handler writes it.
    """
    return ClientError(
        f"the handler called {call} on the connection of @once, which would separate its work from the id of the "
        "message; return to commit both, raise to roll both back, and use a savepoint for a part of the work "
        "(SQLAlchemy: connection.begin_nested())"
    )
