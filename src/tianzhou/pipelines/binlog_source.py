"""Change-data capture: `format("tianzhou_binlog")`, the changes of MySQL and MariaDB tables as a stream for a topic.

A stream's offset is `{"from": [file, position] or null, "end": [file, position]}`: null for the rows that were there
at the beginning, which are read after the binlog's end was noted, so that what changes meanwhile comes once more. Spark
logs an offset before it runs the batch, and the binlog does not change, so a batch that is run again is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tianzhou.errors import ConfigError, OffsetOutOfRange, TianzhouError
from tianzhou.pipelines.binlog_changes import Change, changes
from tianzhou.pipelines.binlog_changes import snapshot as snapshot_of
from tianzhou.pipelines.topics import Topics
from tianzhou.spark.option_values import RawOptions, number, option, required, several, switch
from tianzhou.spark.pickling import Pickled

COLUMNS = "body BINARY, keys STRING, tags STRING, shardingKey STRING, properties MAP<STRING, STRING>"
NEEDED = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
SERVER_ID = 0x54490000
Position = list[Any]
"""A binlog file's name and an offset in it."""


class BinlogFailed(TianzhouError):
    """The database cannot be read: it does not answer, or refuses."""


def _port(text: str) -> int:
    if number(1)(text) > 65535:
        raise ValueError(text)
    return int(text)


def _tables(raw: RawOptions) -> tuple[tuple[str, str], ...]:
    found = []
    for text in raw.need("tables").split(","):
        schema, dot, table = text.strip().partition(".")
        if not (schema and dot and table):
            raise raw.bad("tables", f"{text.strip()!r} is no table")
        found.append((schema, table))
    return tuple(found)


@dataclass(frozen=True)
class Database:
    """The database and the tables to read; pickled into tasks, so it holds no connection.

    Attributes:
        host: of the server.
        port: of the server.
        user: who reads.
        password: of the user.
        tables: `(schema, table)` of each.
        snapshot: whether to begin with the rows that are there.
    """

    host: str = required("host", "the server's name or address", str)
    port: int = option("port", "a port, 1 to 65535", _port, 3306)
    user: str = required("user", "who may read the tables and the binlog", str)
    password: str = several({"password": "of the user"}, lambda raw: raw.verbatim("password") or "", secret=True)
    tables: tuple[tuple[str, str], ...] = several({"tables": "schema.table, several joined by commas"}, _tables)
    snapshot: bool = switch("snapshot", True, ": whether to begin with the rows that are there")

    def settings(self) -> dict[str, Any]:
        """The arguments of a connection."""
        return {"host": self.host, "port": self.port, "user": self.user, "passwd": self.password, "charset": "utf8mb4"}

    @contextlib.contextmanager
    def ask(self) -> Iterator[Any]:
        """A cursor whose rows are dicts.

        Raises:
            BinlogFailed: the database does not answer, or refuses.
            ConfigError: the package is not installed.
        """
        try:
            import pymysql
            from pymysql.cursors import DictCursor
        except ImportError as error:
            raise ConfigError(f"{error}; pip install 'tianzhou[cdc]'") from error
        try:
            connection = pymysql.connect(**self.settings(), cursorclass=DictCursor, connect_timeout=10)
            with contextlib.closing(connection), connection.cursor() as cursor:
                yield cursor
        except pymysql.MySQLError as error:
            raise BinlogFailed(f"{self.user}@{self.host}:{self.port}: {error.args[-1]}") from error

    def check(self) -> None:
        """See whether the server writes what is needed, and the tables have keys.

        Raises:
            ConfigError: it does not, or they have not; says what to set.
        """
        with self.ask() as cursor:
            for name, wanted in NEEDED.items():
                cursor.execute("SHOW GLOBAL VARIABLES LIKE %s", (name,))
                found = (cursor.fetchone() or {}).get("Value", "not there")
                if found.upper() not in (wanted, "1" if wanted == "ON" else wanted):
                    raise ConfigError(
                        f"{self.host}:{self.port}: {name} is {found}; set {name}={wanted} and start again"
                    )
        self.keys()

    def keys(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """The primary key's columns of each table.

        Raises:
            ConfigError: a table has none, or does not exist.
        """
        found = {}
        with self.ask() as cursor:
            for schema, table in self.tables:
                cursor.execute(
                    "SELECT COLUMN_NAME AS name FROM information_schema.KEY_COLUMN_USAGE "
                    "WHERE CONSTRAINT_NAME = 'PRIMARY' AND TABLE_SCHEMA = %s AND TABLE_NAME = %s "
                    "ORDER BY ORDINAL_POSITION",
                    (schema, table),
                )
                columns = tuple(row["name"] for row in cursor.fetchall())
                if not columns:
                    raise ConfigError(
                        f"table {schema}.{table} does not exist, cannot be read by {self.user}, or has no primary key, "
                        "by which changes are kept in order"
                    )
                found[schema, table] = columns
        return found

    def files(self) -> list[Position]:
        """The binlog's files and their sizes, oldest first."""
        with self.ask() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            return [[row["Log_name"], int(row["File_size"])] for row in cursor.fetchall()]


class BinlogSource(Pickled, DataSource):
    """The data source; register it with `spark.dataSource.register(BinlogSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tianzhou_binlog"

    def schema(self) -> str:
        """The columns of the sink."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> BinlogReader:  # noqa: N802 - Spark's name
        """For `spark.readStream`.

        Raises:
            ConfigError: an option is wrong.
        """
        del schema
        return BinlogReader(RawOptions(self.options, Database).parse(Database))


class Piece(InputPartition):
    """What one task reads: between two positions, or the tables as they are when there is no first one."""

    def __init__(self, start: Position | None, end: Position) -> None:
        super().__init__(f"{start}-{end}")
        self.start = start
        self.end = end


class BinlogReader(Pickled, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from where the last micro-batch ended; one task, for the binlog has one order.

    Args:
        database: what to read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._initial: dict[str, Any] | None = None
        self._target: Position | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        if self._initial is None:
            self._database.check()
            end = None if self._database.snapshot else self._database.files()[-1]
            self._initial = {"from": end, "end": end}
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the binlog ends now; nothing behind that is read."""
        self._target = self._database.files()[-1]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends: at most at the end of a binlog file.

        Raises:
            OffsetOutOfRange: the server has deleted the file to go on with.
        """
        del limit
        files = self._database.files()
        last = min(files[-1], self._target) if self._target is not None else files[-1]
        at: Position | None = start["end"]
        if at is None:
            return {"from": None, "end": last}
        sizes = dict(files)
        if at[0] not in sizes:
            raise OffsetOutOfRange(
                f"binlog {at[0]} is deleted on {self._database.host}, {files[0][0]} is the oldest left; changes are "
                "lost (expire_logs_days). Start over with another checkpoint and a snapshot"
            )
        later = [name for name, _ in files if name > at[0]]
        if at[1] >= sizes[at[0]] and later:
            at = [later[0], 4]
        end = [at[0], sizes[at[0]]] if last[0] > at[0] else last
        return start if end <= at else {"from": at, "end": end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The one piece of a micro-batch, from what `end` says about its beginning."""
        return [] if start == end else [Piece(end["from"], end["end"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The changes of a piece as rows for the sink."""
        if not isinstance(partition, Piece):  # Spark's stand-in for "no partitions"
            return
        found = rows_there(self._database, partition.end) if partition.start is None else None
        for change in found or changes_between(self._database, partition.start or [], partition.end):
            key = change.key_text()
            properties = {"op": change.op, "position": change.position}
            yield change.body(), key, change.table, key, properties


def rows_there(database: Database, at: Position) -> Iterator[Change]:
    """The rows of the tables, as changes at a position they were read behind."""
    file, offset = at
    for (schema, table), keys in database.keys().items():
        with database.ask() as cursor:
            cursor.execute(f"SELECT * FROM `{schema}`.`{table}`")
            for row in cursor:
                key = {name: row[name] for name in keys}
                yield snapshot_of(f"{schema}.{table}", key, row, file=file, offset=offset)


def changes_between(database: Database, start: Position, end: Position) -> Iterator[Change]:
    """The changes behind `start` up to `end`."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    kinds = {WriteRowsEvent: "insert", UpdateRowsEvent: "update", DeleteRowsEvent: "delete"}
    keys = database.keys()
    stream = BinLogStreamReader(
        connection_settings=database.settings(),
        server_id=SERVER_ID + hash(database.tables) % 0xFFFF,
        log_file=start[0],
        log_pos=start[1],
        resume_stream=True,
        blocking=False,
        only_events=list(kinds),
        only_schemas=sorted({schema for schema, _ in database.tables}),
        only_tables=sorted({table for _, table in database.tables}),
        enable_logging=False,
    )
    try:
        for event in stream:
            place = [stream.log_file, stream.log_pos]
            if place > end:
                return
            primary = keys.get((event.schema, event.table))
            if primary is not None:
                yield from changes(
                    kinds[type(event)],
                    f"{event.schema}.{event.table}",
                    primary,
                    event.rows,
                    file=place[0],
                    offset=place[1],
                    at=event.timestamp,
                )
    finally:
        stream.close()


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
        checkpoint: the folder that keeps how far it is in the binlog.
        host: of the database.
        port: of the database.
        user: a user with the privileges REPLICATION SLAVE, BINLOG MONITOR (MySQL: REPLICATION CLIENT) and SELECT.
        password: of the user.
        tables: `schema.table` of each.
        snapshot: begin with the rows that are there, instead of with the changes from now on.
        follow: go on with later changes.
    """
    topics.spark.dataSource.register(BinlogSource)
    rows = (
        topics.spark.readStream.format(BinlogSource.name())
        .options(host=host, port=port, user=user, password=password, tables=",".join(tables))
        .option("snapshot", str(snapshot).lower())
        .load()
    )
    return topics.start(rows, checkpoint, topic=target, follow=follow)
