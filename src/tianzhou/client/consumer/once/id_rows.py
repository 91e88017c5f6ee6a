"""The rows of processed ids in a database: prepares the table once, and deletes expired rows from time to time."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass

from tianzhou.client.consumer.once.id_table import IdTable, prepare_table, purge_expired
from tianzhou.client.consumer.once.transactions import (
    AsyncDatabase,
    AsyncTransaction,
    BlockingDatabase,
    Transaction,
    run,
    run_async,
)

_log = logging.getLogger(__name__)

PURGE_EVERY = 500
"""Committed rows between two steps of deleting expired rows. A step deletes up to twice as many, so it keeps up."""


@dataclass
class _Upkeep:
    """Counter of committed rows, and source of ids for probes.

    Attributes:
        name: name of the table.
        create: whether to create the table.
    """

    name: str
    create: bool
    committed: int = 0

    def is_due(self, committed: int) -> bool:
        """Count committed rows, and return whether expired rows have to be deleted now."""
        # Two threads that count at the same time may lose some rows of the count, which only delays the deletion.
        self.committed += committed
        if self.committed < PURGE_EVERY:
            return False
        self.committed = 0
        return True

    @staticmethod
    def probe_id() -> str:
        return f"probe:{uuid.uuid4().hex}"

    def log_failed_purge(self) -> None:
        _log.warning(
            "expired rows of table %s were not deleted; after %d more messages it is tried again",
            self.name,
            PURGE_EVERY,
            exc_info=True,
        )


class BlockingIdRows:
    """Rows of a blocking database, for handlers that are plain functions.

    Args:
        database: begins transactions.
        name: name of the table.
        create: whether to create the table when it is missing.
    """

    is_async = False

    def __init__(self, database: BlockingDatabase, name: str, *, create: bool) -> None:
        self._database = database
        self._upkeep = _Upkeep(name, create)
        self._lock = threading.Lock()
        self._table: IdTable | None = None

    def table(self, now_ms: int) -> IdTable:
        """Return the table, which is prepared at the first call; see `prepare_table`.

        Args:
            now_ms: present time, milliseconds since the epoch.
        """
        if self._table is None:
            with self._lock:
                if self._table is None:
                    table = IdTable(self._database.dialect, self._upkeep.name)
                    with self._database.begin() as transaction:
                        probe_id = self._upkeep.probe_id()
                        run(prepare_table(table, probe_id, now_ms, create=self._upkeep.create), transaction.execute)
                    self._table = table
        return self._table

    def begin(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction; see `BlockingDatabase.begin`."""
        return self._database.begin()

    def purge_if_due(self, committed: int, now_ms: int) -> None:
        """Delete some expired rows after enough committed rows. A failure is logged.

        Args:
            committed: number of rows committed since the last call.
            now_ms: present time, milliseconds since the epoch.
        """
        if not self._upkeep.is_due(committed):
            return
        try:
            with self._database.begin() as transaction:
                run(purge_expired(self.table(now_ms), now_ms), transaction.execute)
        except Exception:  # noqa: BLE001 - the work is committed, so no failure here concerns the message
            self._upkeep.log_failed_purge()


class AsyncIdRows:
    """Rows of an async database, for handlers that are coroutine functions; see `BlockingIdRows`."""

    is_async = True

    def __init__(self, database: AsyncDatabase, name: str, *, create: bool) -> None:
        self._database = database
        self._upkeep = _Upkeep(name, create)
        self._lock = asyncio.Lock()
        self._table: IdTable | None = None

    async def table(self, now_ms: int) -> IdTable:
        """Return the table; see `BlockingIdRows.table`."""
        if self._table is None:
            async with self._lock:
                if self._table is None:
                    table = IdTable(self._database.dialect, self._upkeep.name)
                    async with self._database.begin() as transaction:
                        steps = prepare_table(table, self._upkeep.probe_id(), now_ms, create=self._upkeep.create)
                        await run_async(steps, transaction.execute)
                    self._table = table
        return self._table

    def begin(self) -> AbstractAsyncContextManager[AsyncTransaction]:
        """Begin a transaction; see `AsyncDatabase.begin`."""
        return self._database.begin()

    async def purge_if_due(self, committed: int, now_ms: int) -> None:
        """Delete some expired rows; see `BlockingIdRows.purge_if_due`."""
        if not self._upkeep.is_due(committed):
            return
        try:
            table = await self.table(now_ms)
            async with self._database.begin() as transaction:
                await run_async(purge_expired(table, now_ms), transaction.execute)
        except Exception:  # noqa: BLE001 - the work is committed, so no failure here concerns the message
            self._upkeep.log_failed_purge()
