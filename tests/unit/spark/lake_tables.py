"""Lake tables of the tests: their options, rows for them, and readers."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from tianzhou.spark.lake.formats import open_table, read_part
from tianzhou.spark.lake.options import parse_lake

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
    """Return a row of SCHEMA with values that are difficult in partitions: nulls, odd texts, days and hours
    around 1970.
    """
    return {
        "id": number,
        "item": ITEMS[number % len(ITEMS)],
        "queue": None if number % 7 == 6 else number % 7,
        "day": None if number % 11 == 10 else FIRST + dt.timedelta(days=number % 3),
        "done": number % 2 == 0,
        "at": BEGIN + dt.timedelta(minutes=30 * number),
    }


def rows(first, count):
    """Return rows of SCHEMA as a batch."""
    return pa.RecordBatch.from_pylist([row(number) for number in range(first, first + count)], SCHEMA)


def options_of(kind, folder):
    """Return the options of a table in a folder; skip the test when the package of the format is missing."""
    if kind == "delta":
        pytest.importorskip("deltalake")
        return {"tableFormat": kind, "path": str(folder / "table")}
    pytest.importorskip("pyiceberg")
    where = {"catalogUri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return {"tableFormat": kind, "table": "lake.orders", **where}


class Table:
    """A lake table with the target of its last `prepare`.

    Args:
        options: as a user writes them.
    """

    def __init__(self, options):
        self.options = parse_lake(options)
        self._table = open_table(self.options)
        self.target: Any = None

    def __getattr__(self, name):
        return getattr(self._table, name)

    def prepare(self, schema):
        """Prepare the table and return the schema of its files."""
        self.target = self._table.prepare(schema)
        return self.target.schema

    def written(self, *batches, target_bytes=1 << 20):
        """Write files of rows without a commit, and return them."""
        return dataclasses.replace(self.target, target_bytes=target_bytes).write(batches, "part-0-00000")

    def read(self, schema=None, parts=None):
        """Return the rows of the table, or of parts of it."""
        schema, parts = schema or self.schema(), self.scan() if parts is None else parts
        return [one for part in parts for batch in read_part(self.options, part, schema) for one in batch.to_pylist()]

    def paths(self, *conditions):
        """Return the paths of the files that conditions leave."""
        return [path_of(part) for part in self.scan(conditions)]


def path_of(part):
    """Return the path of the file of a part of a scan."""
    return part[0].path if hasattr(part[0], "path") else part[0].file.file_path


def table_of(options, **more):
    """Return a table that may not exist yet."""
    return Table({**options, **more})


def iceberg_table(options):
    """Open an Iceberg table with pyiceberg itself."""
    from pyiceberg.catalog import load_catalog

    where = parse_lake(options)
    return load_catalog(where.catalog_name, **where.catalog).load_table(where.table)


def prepared(options, schema=SCHEMA, **more):
    """Return a table that was prepared for rows of a schema."""
    table = table_of(options, **more)
    table.prepare(schema)
    return table
