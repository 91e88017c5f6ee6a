"""A database server: its log settings, its tables, their rows, and the stream of its binlog.

PyMySQL connects and speaks the protocol; a binlog's events are decoded in `tianzhou.pipelines.binlog.events`.
"""

from __future__ import annotations

import contextlib
import re
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tianzhou.errors import ConfigError, TianzhouError
from tianzhou.pipelines.binlog import events as e
from tianzhou.pipelines.binlog.captured import Captured
from tianzhou.pipelines.binlog.columns import Column, quoted
from tianzhou.pipelines.binlog.statements import Table
from tianzhou.pipelines.binlog_changes import file_number

NEEDED: Final = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
"""Variables of the server, each with its required value."""
SESSION: Final = "SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600"
"""Session settings of a snapshot: TIMESTAMP in UTC, texts as stored, an hour for a slow reader."""
COMMIT_S: Final = 30.0
"""Seconds that a transaction may take between the binlog and the table."""
PAUSE_S: Final = 0.1
"""Seconds between two checks of a server's position."""
ENCRYPTION_HEADER_BYTES: Final = 512
"""Size of the header of an encrypted binlog file of MySQL. Offsets do not include it."""
FIRST_OFFSET: Final = 4
"""Offset of a binlog file's first event."""
_DUMP: Final = 0x12
_DO_NOT_WAIT: Final = 1
_DATABASE_DENIED: Final = 1044
_LOCK_WAIT_TIMEOUT: Final = 1205
_MOST_OFFSET: Final = 0xFFFFFFFF
"""The greatest offset that a request of the protocol can contain."""
_COLUMNS: Final = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, CHARACTER_OCTET_LENGTH, DATETIME_PRECISION,
    NUMERIC_PRECISION, NUMERIC_SCALE
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEYS: Final = """
SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE
WHERE CONSTRAINT_NAME = 'PRIMARY' AND TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_CASCADE: Final = re.compile(
    r"CONSTRAINT `((?:[^`]|``)+)` FOREIGN KEY [^\n]* ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)"
)
"""A cascading foreign key in the text of SHOW CREATE TABLE. information_schema hides it from users who only read."""


class BinlogFailed(TianzhouError):
    """The database cannot be read: it does not answer, or rejects a request."""


@dataclass(frozen=True)
class Server:
    """A database server and the user that reads it. It holds no connection, so that tasks can be pickled.

    Attributes:
        host: host of the server.
        port: port of the server.
        user: name of the user that reads.
        password: password of the user.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """Open a connection for the block.

        Raises:
            BinlogFailed: the database does not answer, or rejects the connection.
            ConfigError: the package is not installed.
        """
        try:
            import pymysql
        except ImportError as error:
            raise ConfigError(f"{error}; pip install 'tianzhou[cdc]'") from error
        try:
            connection = pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                charset="utf8mb4",
                connect_timeout=10,
                autocommit=True,
            )
            with contextlib.closing(connection):
                yield connection
        except pymysql.MySQLError as error:
            raise BinlogFailed(f"{self.user}@{self.host}:{self.port}: {error.args[-1]}") from error

    @contextlib.contextmanager
    def ask(self) -> Iterator[Any]:
        """Open a cursor whose rows are tuples. Raises the errors of `connection`."""
        with self.connection() as connection, connection.cursor() as cursor:
            yield cursor

    def check(self) -> None:
        """Check that the server logs full rows.

        Raises:
            ConfigError: it does not. The text names the variable to set.
        """
        with self.ask() as cursor:
            for name, wanted in NEEDED.items():
                found = _variable(cursor, name)
                if found.upper() not in (wanted, "1" if wanted == "ON" else wanted):
                    raise ConfigError(
                        f"{self.host}:{self.port}: {name} is {found}; set {name}={wanted} and start again"
                    )
            partial = _variable(cursor, "binlog_row_value_options", "")
            if partial:
                raise ConfigError(
                    f"{self.host}:{self.port}: binlog_row_value_options is {partial}; set it to '' and start again"
                )

    def any_case(self) -> bool:
        """Whether the server folds the names of tables to lower case.

        Raises:
            ConfigError: the server keeps the written case and compares in lower case.
        """
        with self.ask() as cursor:
            found = _variable(cursor, "lower_case_table_names", "0")
        if found == "2":
            raise ConfigError(f"{self.host}:{self.port}: lower_case_table_names is 2, which is not followed")
        return found == "1"

    def captured(self, tables: Sequence[Table]) -> dict[Table, Captured]:
        """Return the definitions of the tables.

        Raises:
            ConfigError: a table does not exist, has no primary key, or has a column that cannot be captured.
        """
        found = {}
        lower = self.any_case()
        with self.ask() as cursor:
            for named in tables:
                schema, name = (named[0].lower(), named[1].lower()) if lower else named
                found[schema, name] = self._captured(cursor, schema, name)
        return found

    def _captured(self, cursor: Any, schema: str, name: str) -> Captured:
        cursor.execute(_KEYS, (schema, name))
        key = tuple(row[0] for row in cursor.fetchall())
        if not key:
            raise ConfigError(
                f"table {schema}.{name} does not exist, cannot be read by {self.user}, or has no primary key, "
                "by which changes are kept in order"
            )
        cursor.execute(
            "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (schema, name),
        )
        (kind,) = cursor.fetchone()
        if kind != "BASE TABLE":
            raise ConfigError(f"table {schema}.{name} is a {kind}, whose rows are not captured")
        cursor.execute(_COLUMNS, (schema, name))
        columns = tuple(column_of(*row) for row in cursor.fetchall())
        for column in columns:
            if column.refused:
                raise ConfigError(f"table {schema}.{name}: column {column.name} {column.refused}")
        return Captured(schema, name, columns, key)

    def cascades(self, table: Captured) -> list[str]:
        """Return the names of foreign keys by which the server changes rows without logging them.

        MySQL 9.6 and later change these rows above InnoDB and log them, unless a setting restores the older way.
        """
        with self.ask() as cursor:
            if _variable(cursor, "innodb_native_foreign_keys", "ON") == "OFF":
                return []
            cursor.execute(f"SHOW CREATE TABLE {quoted(table.schema)}.{quoted(table.name)}")
            return [name.replace("``", "`") for name in _CASCADE.findall(cursor.fetchone()[1])]

    def files(self) -> list[tuple[str, int]]:
        """Return the binlog's files and their sizes in bytes, oldest first."""
        with self.ask() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            return [file_of(row) for row in cursor.fetchall()]

    def begun(self, file: str, server_id: int) -> int:
        """Return when a binlog file was begun, in seconds since the epoch.

        The time distinguishes the file from another file of the same name.

        Args:
            file: the file.
            server_id: number of this replica.

        Raises:
            BinlogFailed: the database rejects a request, or the file has no first event.
        """
        for event, _, _ in self.events(file, FIRST_OFFSET, server_id):
            if event.kind == e.FORMAT:
                return event.at
        raise BinlogFailed(f"{self.host}:{self.port}: binlog {file} has no first event")

    def rows(self, table: Captured, behind: tuple[str, int], *, wait_s: float = COMMIT_S) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table, with the values of changes.

        Args:
            table: the table.
            behind: a position in the binlog. The rows include every transaction before it.
            wait_s: seconds to wait for transactions that are in the binlog and not yet committed.

        Raises:
            BinlogFailed: the database rejects a request, or a value cannot be decoded. The error contains the column.
        """
        from pymysql.cursors import SSCursor

        wanted = ", ".join(column.select for column in table.columns)
        with self.connection() as connection:
            with connection.cursor() as cursor:
                cursor.execute(SESSION)
                _begin(cursor, table, behind, wait_s)
            with connection.cursor(SSCursor) as cursor:
                cursor.execute(f"SELECT {wanted} FROM {quoted(table.schema)}.{quoted(table.name)}")
                for found in cursor:
                    row = {}
                    for column, value in zip(table.columns, found, strict=True):
                        try:
                            row[column.name] = column.read(value)
                        except (ValueError, ArithmeticError) as error:
                            shown = {name: row.get(name) for name in table.key}
                            raise BinlogFailed(
                                f"{table.full_name}: a row of the snapshot cannot be read: column {column.name}: "
                                f"{error}; the row's key is {shown}"
                            ) from error
                    yield row

    def events(self, file: str, offset: int, server_id: int) -> Iterator[tuple[e.BinlogEvent, str, int]]:
        """Yield the events from a position to the binlog's end, each with its file and its end offset.

        Args:
            file: the binlog's file.
            offset: the offset in it.
            server_id: number of this replica. The server closes an older stream of the same number.

        Raises:
            BinlogFailed: the database rejects a request, or an event is damaged.
        """
        if offset > _MOST_OFFSET:
            raise BinlogFailed(
                f"{self.host}:{self.port}: the offset {offset} in {file} is beyond 4 GiB, where a server cannot be "
                "asked to begin; go on when it has begun another file (FLUSH BINARY LOGS)"
            )
        with self.connection() as connection:
            with connection.cursor() as cursor:
                checksums = _variable(cursor, "binlog_checksum", "NONE").upper() != "NONE"
                cursor.execute("SET @master_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4")
                cursor.execute("SET @source_binlog_checksum = @@global.binlog_checksum")
            request = struct.pack("<IHI", offset, _DO_NOT_WAIT, server_id) + file.encode()
            connection._execute_command(_DUMP, request)  # PyMySQL has no public call for commands
            place = offset
            while True:
                packet = connection._read_packet()
                if packet.is_eof_packet():
                    return
                raw = packet.get_all_data()[1:]
                if raw[4] == e.FORMAT:
                    checksums = e.has_checksums(raw)
                try:
                    event = e.event_of(raw, checksum=checksums)
                except ValueError as error:
                    raise BinlogFailed(f"{self.host}:{self.port}: binlog {file} behind {place}: {error}") from error
                if event.kind == e.ROTATE:
                    file, place = event.body[8:].decode(), int.from_bytes(event.body[:8], "little")
                elif event.end:
                    # The offset in the header has 32 bits, and a file may be longer.
                    least = place + event.size if place else 0
                    place = least + (event.end - least) % (_MOST_OFFSET + 1) if least > _MOST_OFFSET else event.end
                yield event, file, place


def _begin(cursor: Any, table: Captured, behind: tuple[str, int], wait_s: float) -> None:
    """Begin a transaction that sees every change in the binlog before a position.

    A server writes a transaction to the binlog first and commits it in the table afterwards.

    Raises:
        BinlogFailed: the transactions before the position are not committed in time.
    """
    deadline = time.monotonic() + wait_s
    while True:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        seen = {str(name).lower(): value for name, value in cursor.fetchall()}
        if not seen:
            _wait_for_commits(cursor, table, wait_s)
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return
        at = seen["binlog_snapshot_file"], int(seen["binlog_snapshot_position"])
        if order(at) >= order(behind):
            return
        if time.monotonic() > deadline:
            raise BinlogFailed(
                f"{table.full_name}: the rows that are there reach the binlog's {at[0]}:{at[1]}, and should reach "
                f"{behind[0]}:{behind[1]}: a transaction is not committed for {wait_s:g} s"
            )
        time.sleep(PAUSE_S)


def _wait_for_commits(cursor: Any, table: Captured, wait_s: float) -> None:
    """Wait for the commits on MySQL, which does not report a snapshot's position, by a lock of the table.

    The lock waits for all transactions with changed rows. Writers wait behind the lock, so the wait has an end.

    Raises:
        BinlogFailed: the user may not lock the table, or the lock is not granted in time.
    """
    import pymysql

    cursor.execute(f"SET SESSION lock_wait_timeout = {max(1, round(wait_s))}")
    try:
        cursor.execute(f"LOCK TABLES {quoted(table.schema)}.{quoted(table.name)} READ")
    except pymysql.OperationalError as error:
        if error.args[0] == _DATABASE_DENIED:
            raise BinlogFailed(
                f"{table.full_name}: the snapshot needs the privilege LOCK TABLES: {error.args[1]}; "
                f"GRANT LOCK TABLES ON {quoted(table.schema)}.* TO this user"
            ) from error
        if error.args[0] != _LOCK_WAIT_TIMEOUT:
            raise
        raise BinlogFailed(
            f"{table.full_name}: the snapshot waits for transactions that have changed the table, and one is not "
            f"committed for {wait_s:g} s; end it and start again"
        ) from error
    cursor.execute("UNLOCK TABLES")


def file_of(row: Sequence[Any]) -> tuple[str, int]:
    """Return a binlog file's name and its size in bytes without encryption.

    Args:
        row: a row of SHOW BINARY LOGS. On MySQL its third value is whether the file is encrypted. The size of an
            encrypted file includes the header of the encryption.
    """
    is_encrypted = len(row) > 2 and row[2] == "Yes"
    return row[0], int(row[1]) - (ENCRYPTION_HEADER_BYTES if is_encrypted else 0)


def order(position: Sequence[Any]) -> tuple[int, int]:
    """Return the sort key of a position: the file's number and the offset.

    Args:
        position: the file and the offset.
    """
    return file_number(position[0]), int(position[1])


def column_of(
    name: str,
    kind: str,
    full_type: str,
    charset: str | None,
    size_bytes: int | None,
    fraction_digits: int | None,
    precision: int | None,
    scale: int | None,
) -> Column:
    """Return the column for a row of information_schema.COLUMNS."""

    def text(value: Any) -> str:
        return value.decode() if isinstance(value, bytes) else str(value)

    return Column(
        text(name),
        text(kind).lower(),
        text(full_type),
        charset,
        None if size_bytes is None else int(size_bytes),
        int(fraction_digits or 0),
        int(precision or 0),
        int(scale or 0),
    )


def _variable(cursor: Any, name: str, otherwise: str = "not there") -> str:
    cursor.execute("SHOW GLOBAL VARIABLES LIKE %s", (name,))
    found = cursor.fetchone()
    return str(found[1]) if found else otherwise
