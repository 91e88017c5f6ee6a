"""Change-data capture: `format("tianzhou_binlog")`, the changes of MySQL and MariaDB tables as a stream for a topic.

A stream's offset is `{"from": place or null, "end": place}`. A place is `[file, position, begun]`: the second in which
the file was begun distinguishes it from another file of the same name. Null means the snapshot. The snapshot is read
after the binlog's end was recorded, so that changes in between are sent once more. Spark logs an offset before it runs
the batch, and the binlog does not change, so a repeated batch is the same.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tianzhou.errors import OffsetOutOfRange
from tianzhou.pipelines.binlog.captured import START_ANEW, BinlogDecoder, Captured, ChangesLost
from tianzhou.pipelines.binlog.database import FIRST_OFFSET, PAUSE_S, BinlogFailed, Server, order
from tianzhou.pipelines.binlog.events import FORMAT, BinlogEvent
from tianzhou.pipelines.binlog.statements import Table
from tianzhou.pipelines.binlog_changes import Change, file_number, truncation
from tianzhou.pipelines.binlog_changes import snapshot as snapshot_of
from tianzhou.pipelines.topics import Topics
from tianzhou.spark.option_values import RawOptions, number, option, required, several, switch
from tianzhou.spark.pickling import Pickled

logger = logging.getLogger(__name__)

COLUMNS = "body BINARY, keys STRING, tags STRING, shardingKey STRING, properties MAP<STRING, STRING>"
SERVER_ID = 0x54490000
Position = list[Any]
"""Name of a binlog file and an offset in it. A stream's place also has the second in which the file was begun."""
PLACE_PARTS = 3
"""Number of members of a stream's place."""


CATCH_UP_S = 30.0
"""Seconds that a server may take to send the whole binlog up to the position that it reported."""


def _port(text: str) -> int:
    if number(1)(text) > 65535:
        raise ValueError(text)
    return int(text)


def _tables(raw: RawOptions) -> tuple[Table, ...]:
    found = []
    for text in raw.need("tables").split(","):
        schema, dot, table = text.strip().partition(".")
        if not (schema and dot and table):
            raise raw.bad("tables", f"{text.strip()!r} is no table")
        found.append((schema, table))
    return tuple(found)


@dataclass(frozen=True)
class Database:
    """The database and the tables to read. It is pickled into tasks, so it contains no connection.

    Attributes:
        host: host of the server.
        port: port of the server.
        user: name of the user that reads.
        password: password of the user.
        tables: `(schema, table)` of each table.
        snapshot: whether to begin with the present rows.
    """

    host: str = required("host", "the server's name or address", str)
    port: int = option("port", "a port, 1 to 65535", _port, 3306)
    user: str = required("user", "a user that may read the tables and the binlog", str)
    password: str = several({"password": "of the user"}, lambda raw: raw.verbatim("password") or "", secret=True)
    tables: tuple[Table, ...] = several({"tables": "schema.table, several joined by commas"}, _tables)
    snapshot: bool = switch("snapshot", True, ": whether to begin with the rows that are there")

    @property
    def server(self) -> Server:
        """The server, with the user that reads."""
        return Server(self.host, self.port, self.user, self.password)

    @property
    def server_id(self) -> int:
        """Number of this replica."""
        return SERVER_ID + hash(self.tables) % 0xFFFF

    def captured(self) -> dict[Table, Captured]:
        """Return the present definitions of the tables.

        Raises:
            ConfigError: a table does not exist, has no primary key, or has a column that cannot be captured.
        """
        return self.server.captured(self.tables)

    def check(self) -> None:
        """Check that the server logs full rows and that the tables can be captured.

        Raises:
            ConfigError: a check failed. The text names the cause.
        """
        self.server.check()
        for table in self.captured().values():
            cascades = self.server.cascades(table)
            if cascades:
                logger.warning(
                    "table %s: rows that its foreign keys %s delete or change are not in the binlog; compare with: "
                    "tianzhou pipeline verify %s",
                    table.full_name,
                    ", ".join(cascades),
                    table.full_name,
                )

    def files(self) -> list[Position]:
        """Return the binlog's files and their sizes, oldest first."""
        return [list(file) for file in self.server.files()]

    def place(self, position: Position) -> Position:
        """Return a file and an offset with the second in which the file was begun."""
        return [*position, self.server.begun(position[0], self.server_id)]

    def names(self) -> str:
        """Return the names of the tables, for messages."""
        return ", ".join(".".join(table) for table in self.tables)


class BinlogSource(Pickled, DataSource):
    """A data source. Register it with `spark.dataSource.register(BinlogSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tianzhou_binlog"

    def schema(self) -> str:
        """Return the columns of the sink."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> BinlogReader:  # noqa: N802 - Spark's name
        """Return the reader for `spark.readStream`.

        Raises:
            ConfigError: an option is wrong.
        """
        del schema
        return BinlogReader(RawOptions(self.options, Database).parse(Database))

    def reader(self, schema: StructType) -> SnapshotReader:
        """Return the reader for `spark.read`: the present rows as changes.

        Raises:
            ConfigError: an option is wrong.
        """
        del schema
        return SnapshotReader(RawOptions(self.options, Database).parse(Database))


class SnapshotReader(Pickled, DataSourceReader):
    """A reader of the present rows in one task.

    Args:
        database: the database and the tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the tables as rows for the sink."""
        del partition
        for change in rows_there(self._database, self._database.files()[-1]):
            if change.row is not None:
                yield sink_row(change)


class Piece(InputPartition):
    """The work of a task: the binlog between two positions, or the snapshot if there is no first position."""

    def __init__(self, start: Position | None, end: Position) -> None:
        super().__init__(f"{start}-{end}")
        self.start = start
        self.end = end


class BinlogReader(Pickled, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of the binlog from the last micro-batch's end. It uses one task, because the binlog has one order.

    Args:
        database: the database and the tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._initial: dict[str, Any] | None = None
        self._target: Position | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the first offset of a query without a checkpoint."""
        if self._initial is None:
            self._database.check()
            end = None if self._database.snapshot else self._database.place(self._database.files()[-1])
            self._initial = {"from": end, "end": end}
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the binlog's end, where the query stops."""
        self._target = self._database.files()[-1]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch. A micro-batch does not cross the end of a binlog file.

        Raises:
            OffsetOutOfRange: the server has deleted the file.
            ChangesLost: the server has another binlog, or an earlier version wrote the checkpoint.
        """
        del limit
        files = self._database.files()
        last = min(files[-1], self._target, key=order) if self._target is not None else files[-1]
        at: Position | None = start["end"]
        if at is None:
            return {"from": None, "end": self._database.place(last)}
        if len(at) != PLACE_PARTS:
            raise ChangesLost(
                f"{self._database.names()}: the checkpoint has the place {at} without the second in which the file was "
                f"begun, as an earlier version wrote it; {START_ANEW}"
            )
        sizes = dict(files)
        if at[0] not in sizes:
            if file_number(files[-1][0]) < file_number(at[0]):
                raise _another_binlog(self._database, at, f"its newest file is {files[-1][0]}")
            raise OffsetOutOfRange(
                f"{self._database.names()}: binlog {at[0]} is deleted on {self._database.host}, {files[0][0]} is the "
                "oldest left; changes are lost (binlog_expire_logs_seconds, expire_logs_days). Start over with another "
                "checkpoint and a snapshot"
            )
        later = [name for name, _ in files if file_number(name) > file_number(at[0])]
        if at[1] > sizes[at[0]]:
            raise _another_binlog(self._database, at, f"the file has {sizes[at[0]]} bytes")
        if at[1] == sizes[at[0]] and later:
            if self._database.place(at[:2]) != at:
                raise _another_binlog(self._database, at, "the file was begun later")
            at = self._database.place([later[0], FIRST_OFFSET])
        end = [at[0], sizes[at[0]]] if order(last) > order([at[0], 1 << 62]) else last
        if order(end) <= order(at):
            return start
        return {"from": at, "end": [*end, at[2]] if end[0] == at[0] else self._database.place(end)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the one piece of a micro-batch. `end` contains its beginning."""
        return [] if start == end else [Piece(end["from"], end["end"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the changes of a piece as rows for the sink."""
        if not isinstance(partition, Piece):  # Spark's stand-in for "no partitions"
            return
        start, end = partition.start, partition.end
        for change in rows_there(self._database, end) if start is None else changes_between(self._database, start, end):
            yield sink_row(change)


def sink_row(change: Change) -> tuple[Any, ...]:
    """Return a change as a row for the sink."""
    key = change.key_text()
    return change.body(), key, change.table, key, {"op": change.op, "position": change.position}


def rows_there(database: Database, at: Position) -> Iterator[Change]:
    """Yield the rows of the tables as changes at a position before the read.

    Each table begins with a truncation, which deletes rows of older snapshots that no longer exist.
    """
    file, offset, *_ = at
    for table in database.captured().values():
        yield truncation(table.full_name, file=file, offset=offset)
        for row in database.server.rows(table, (file, offset)):
            key = {name: row[name] for name in table.key}
            yield snapshot_of(table.full_name, key, row, file=file, offset=offset)


def changes_between(database: Database, start: Position, end: Position) -> Iterator[Change]:
    """Yield the changes after `start` up to `end`.

    Raises:
        BinlogFailed: the database rejects a request, or does not send the binlog up to `end`.
        ChangesLost: an event cannot be followed, or the server has another binlog.
    """
    tables = database.captured()
    reader = BinlogDecoder(tables, any_case=database.server.any_case())
    at, deadline = start, time.monotonic() + CATCH_UP_S
    while order(at) < order(end):
        for event, file, offset in _events_behind(database, start, at):
            if event.kind == FORMAT and file == start[0] and event.at != start[2]:
                raise _another_binlog(database, start, f"the file was begun at {_moment(event.at)}")
            at = [file, offset]
            if order(at) > order(end):  # The end of the file is reached.
                break
            yield from reader.changes(event, file, offset)
            if order(at) == order(end):
                break
            deadline = time.monotonic() + CATCH_UP_S
        if order(at) < order(end):
            # A transaction counts for the reported size of a binlog shortly before the server sends it.
            if time.monotonic() > deadline:
                raise BinlogFailed(
                    f"{database.host}:{database.port}: the binlog should reach {end[0]}:{end[1]}, and the server sent "
                    f"it up to {at[0]}:{at[1]}"
                )
            time.sleep(PAUSE_S)


def _events_behind(database: Database, start: Position, at: Position) -> Iterator[tuple[BinlogEvent, str, int]]:
    """Yield the events after `at`.

    A server rejects an offset inside an event. Such an offset can come from another binlog.
    """
    try:
        yield from database.server.events(at[0], at[1], database.server_id)
    except BinlogFailed as error:
        if at[0] == start[0] and (begun := database.server.begun(start[0], database.server_id)) != start[2]:
            raise _another_binlog(database, start, f"the file was begun at {_moment(begun)}") from error
        raise


def _another_binlog(database: Database, at: Position, reason: str) -> ChangesLost:
    return ChangesLost(
        f"{database.names()}: the binlog cannot be followed at {at[0]}:{at[1]} of the file begun at {_moment(at[2])}: "
        f"{reason}: it is another binlog (RESET MASTER, RESET BINARY LOGS AND GTIDS, or another server); {START_ANEW}"
    )


def _moment(seconds: int) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%SZ}"


def capture(
    topics: Topics,
    target: str,
    checkpoint: str,
    *,
    host: str,
    port: int = 3306,
    user: str,
    password: str = "",
    tables: Sequence[str],
    snapshot: bool = True,
    follow: bool = False,
) -> StreamingQuery:
    """Start sending the changes of tables to a topic.

    Args:
        topics: the cluster.
        target: the topic.
        checkpoint: the folder of the query's checkpoint, with its position in the binlog.
        host: host of the database.
        port: port of the database.
        user: a user with the privileges REPLICATION SLAVE, SELECT and BINLOG MONITOR (MySQL: REPLICATION CLIENT and
            LOCK TABLES).
        password: password of the user.
        tables: `schema.table` of each table.
        snapshot: whether to begin with the present rows, instead of later changes only.
        follow: whether to wait for later changes.
    """
    topics.spark.dataSource.register(BinlogSource)
    rows = (
        topics.spark.readStream.format(BinlogSource.name())
        .options(host=host, port=port, user=user, password=password, tables=",".join(tables))
        .option("snapshot", str(snapshot).lower())
        .load()
    )
    return topics.start(rows, checkpoint, topic=target, follow=follow)
