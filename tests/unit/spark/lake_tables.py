"""Lake tables of the tests: where they are, the rows that go in, and what comes out."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from tianzhou.spark.lake.files import write_files
from tianzhou.spark.lake.formats import open_table
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.reading import file_batches

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("item", pa.string()),
        ("queue", pa.int32()),
        ("day", pa.date32()),
        ("done", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
ITEMS = ["tea", "a=b/c %41 ü", None, "NULL", "x" * 70]
FIRST = dt.date(1969, 12, 31)
BEGIN = dt.datetime(1969, 12, 31, 22, 30, tzinfo=dt.UTC)


def row(number):
    """A row of SCHEMA, with what partitions have trouble with: nulls, odd texts, days and hours around the epoch."""
    return {
        "id": number,
        "item": ITEMS[number % len(ITEMS)],
        "queue": None if number % 7 == 6 else number % 7,
        "day": None if number % 11 == 10 else FIRST + dt.timedelta(days=number % 3),
        "done": number % 2 == 0,
        "at": BEGIN + dt.timedelta(minutes=30 * number),
    }


def rows(first, count):
    return pa.RecordBatch.from_pylist([row(number) for number in range(first, first + count)], SCHEMA)


def options_of(kind, folder):
    """The options of a table in a folder; skips the test when the format's package is not there."""
    if kind != "iceberg":
        if kind == "delta":
            pytest.importorskip("deltalake")
        return {"tableFormat": kind, "path": str(folder / "table")}
    pytest.importorskip("pyiceberg")
    where = {"catalogUri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return {"tableFormat": kind, "table": "lake.orders", **where}


def table_of(options, **more):
    return open_table(parse_lake({**options, **more}))


def iceberg_table(options):
    """Open an Iceberg table as pyiceberg itself does."""
    from pyiceberg.catalog import load_catalog

    where = parse_lake(options)
    return load_catalog(where.catalog_name, **where.catalog).load_table(where.table)


def prepared(options, schema=SCHEMA, **more):
    table = table_of(options, **more)
    table.prepare(schema)
    return table


def written(table, *batches, schema=None, target=1 << 20):
    """Files of rows that no commit speaks of yet."""
    schema, prefix = schema or batches[0].schema, f"{table.prefix}-0-00000"
    return write_files(batches, schema, table.location, prefix, "zstd", target, table.division)


def read(files, schema):
    """The rows of files."""
    return [one for file in files for batch in file_batches(file, schema) for one in batch.to_pylist()]
