"""The process that executes one SQL query over received tables, without access to files and network, and exits.

`python -m tianzhou.console.sql_worker` reads a line of JSON (`tianzhou.console.sql.ask` writes it) and then the records
of the tables. It writes JSON: `error`, or `columns`, `types`, `rows`, `cut`, `counts`. It also decompresses bodies,
because a small record may contain a large one. The parent process kills it after the timeout. A harmful query affects
only this process.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tianzhou.console.display.zones import Zone
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageQueue
from tianzhou.spark.rows.columns import to_batches

ARCHIVE: Final = "archive"
MARGIN_BYTES: Final = 3 << 30
"""Additional address space in bytes, because libraries reserve more than they use."""
BATCH_ROWS: Final = 256
_BEFORE_TABLES: Final = (
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET max_temp_directory_size = '0B'",
    "SET threads = 1",
)
_AFTER_TABLES: Final = ("SET enable_external_access = false", "SET lock_configuration = true")


class QueryRefused(Exception):
    """The query is not allowed."""


def check(sql: str) -> None:
    """Refuse any text but one SELECT.

    Raises:
        Refused: the text is invalid, or not one SELECT.
    """
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryRefused(str(error)) from None
    if len(statements) != 1:
        raise QueryRefused(f"{len(statements)} statements; give one SELECT")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise QueryRefused(f"{statements[0].type.name} is not allowed; only SELECT is")


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def connect(memory_bytes: int, archive: str) -> duckdb.DuckDBPyConnection:
    """Open a database in memory. After `close_doors`, it can open only files in the archive's folder."""
    connection = duckdb.connect(":memory:")
    for setting in (*_BEFORE_TABLES, f"SET memory_limit = '{memory_bytes}B'"):
        connection.execute(setting)
    if archive:
        folder = str(Path(archive).resolve())
        connection.execute(f"SET allowed_directories = [{text_literal(folder + '/')}]")
        files = text_literal(folder + "/**/*.parquet")
        connection.execute(
            f"CREATE VIEW {ARCHIVE} AS SELECT * FROM"
            f" read_parquet({files}, union_by_name = true, hive_partitioning = true)"
        )
    return connection


def close_doors(connection: duckdb.DuckDBPyConnection) -> None:
    """Block the connection's access to files outside the archive, to the network and to settings."""
    for setting in _AFTER_TABLES:
        connection.execute(setting)


def plain(value: Any, zone: dt.tzinfo = dt.UTC) -> Any:
    """Return a value in types that JSON supports. Times with an offset become times in the zone."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(one, zone) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, zone) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(zone).isoformat()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return str(value)


def cells(column: Any, zone: dt.tzinfo = dt.UTC) -> list[Any]:
    """Return the values of an Arrow column in types that JSON supports. Maps become objects."""
    if pa.types.is_timestamp(column.type):
        return [_moment(value, column.type.unit, zone) for value in column]
    values = column.to_pylist(maps_as_pydicts="lossy") if pa.types.is_map(column.type) else column.to_pylist()
    return [plain(value, zone) for value in values]


def _moment(value: Any, unit: str, zone: dt.tzinfo) -> Any:
    """Return a time as ISO 8601, or as a number outside of the years 1 to 9999."""
    try:
        return plain(value.as_py(), zone)
    except (OverflowError, ValueError):
        return f"{value.value} {unit}"


def rows_of(batches: Iterable[Any], most_bytes: int, zone: dt.tzinfo = dt.UTC) -> Iterator[list[Any] | None]:
    """Yield the rows of Arrow batches, few at a time if they are large. Yield None for a row far above the limit.

    Args:
        batches: the Arrow batches.
        most_bytes: maximum size in bytes of the rows that are converted at a time.
        zone: time zone for times with an offset.
    """
    for batch in batches:
        step = max(1, batch.num_rows * most_bytes // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            if part.nbytes > 4 * most_bytes:
                yield None
                return
            yield from map(list, zip(*(cells(column, zone) for column in part.columns), strict=True))


def answer(
    connection: duckdb.DuckDBPyConnection, sql: str, most_rows: int, most_bytes: int, zone: dt.tzinfo = dt.UTC
) -> dict[str, Any]:
    """Execute a query and return its rows.

    Args:
        connection: connection to the database with the tables.
        sql: one SELECT.
        most_rows: maximum number of rows; `cut` reports when there are more.
        most_bytes: maximum size of the rows' text in bytes; `cut` reports when it is larger.
        zone: time zone for times with an offset.
    """
    with contextlib.closing(connection.sql(sql).to_arrow_reader(BATCH_ROWS)) as reader:
        names, types = list(reader.schema.names), [str(kind) for kind in reader.schema.types]
        rows: list[list[Any]] = []
        size, cut = 0, ""
        for row in rows_of(reader, most_bytes, zone):
            if len(rows) == most_rows:
                cut = "rows"
                break
            size += len(json.dumps(row, ensure_ascii=False).encode(errors="replace"))
            if row is None or size > most_bytes:
                cut = "bytes"
                break
            rows.append(row)
    return {"columns": names, "types": types, "rows": rows, "cut": cut}


# Clock times in the visitor's zone. DuckDB supports times with a zone only by an extension, which is not loaded.
_NAIVE: Final = pa.timestamp("us")
COLUMNS: Final[dict[str, Any]] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "body": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "bornTimestamp": _NAIVE,
    "storeTimestamp": _NAIVE,
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "reconsumeTimes": pa.int32(),
    "physicalOffset": pa.int64(),
}
"""Columns of a topic's table: the columns of the Spark source, with the body as text."""


def table_of(
    source: IO[bytes],
    parts: Iterable[tuple[str, str, int, int, int, list[int]]],
    most_bytes: int,
    zone: str = "UTC",
) -> Any:
    """Return records as an Arrow table.

    Args:
        source: stream of the records.
        parts: by queue: topic, broker, queue id, first offset, the offset after the last, and the sizes of the pieces.
        most_bytes: maximum size of the table in bytes.
        zone: name of the time zone of the times.

    Raises:
        CorruptRecord: the bytes are no records.
        Refused: the table exceeds its maximum size.
    """
    shown = pa.schema(list(COLUMNS.items()))
    zoned = pa.timestamp("us", tz="UTC")
    read = pa.schema([(name, zoned if kind == _NAIVE else kind) for name, kind in COLUMNS.items()])
    batches = []
    for topic, broker_name, queue_id, begin, end, sizes in parts:
        queue = MessageQueue(topic, broker_name, queue_id)
        for size in sizes:
            for batch in to_batches(source.read(size), queue, read, tuple(COLUMNS), start=begin, end=end):
                batches.append(batch)
                most_bytes -= batch.nbytes
                if most_bytes < 0:
                    raise QueryRefused(
                        f"the messages of {topic} unpack to more than a query may take; read fewer of each queue"
                    )
    table = pa.Table.from_batches(batches, schema=read)
    if zone != "UTC":
        for at, (name, kind) in enumerate(COLUMNS.items()):
            if kind == _NAIVE:
                moments: Any = table.column(name).cast(pa.timestamp("us", tz=zone))
                clock = pc.local_timestamp(moments)
                table = table.set_column(at, name, clock)
    return table.cast(shown)


def limit_process(memory_bytes: int, seconds: float) -> None:
    """Set limits of memory and processor time, above which the system kills this process."""
    try:
        import resource
    except ImportError:  # no such limits on this system
        return
    space = memory_bytes + MARGIN_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds) + 2, math.ceil(seconds) + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def serve(source: IO[bytes]) -> dict[str, Any]:
    """Read a question and its tables, and return the answer; see the module."""
    question = json.loads(source.readline())
    sql: str = question["sql"]
    limit_process(question["memory"], question["seconds"])
    try:
        check(sql)
        connection = connect(question["memory"], question["archive"])
        counts = {}
        for name, parts in question["tables"]:
            table = table_of(source, parts, question["memory"] // 2, question["zone"])
            counts[name] = table.num_rows
            connection.register(name, table)
        close_doors(connection)
        return answer(connection, sql, question["rows"], question["bytes"], Zone(question["zone"]).info) | {
            "counts": counts
        }
    except (QueryRefused, TianzhouError, duckdb.Error, pa.ArrowException, decimal.DecimalException) as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError, OverflowError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}".rstrip(": ")}


def main() -> None:
    """Answer the question on standard input."""
    found = serve(sys.stdin.buffer)
    sys.stdout.buffer.write(json.dumps(found, ensure_ascii=True, default=str).encode())


if __name__ == "__main__":
    main()
