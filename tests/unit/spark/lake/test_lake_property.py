"""Random columns, rows and partition values through writes, evolutions, overwrites and compactions of lake tables.

The rows are read back equal through our reader, through the library of the format, and (unpartitioned) through DuckDB.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("hypothesis")

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from lake_tables import Table, iceberg_table, options_of, prepared, table_of

from property_examples import costly
from tianzhou.spark.lake.columns import has_local_times_in_map
from tianzhou.spark.lake.tables import Batch

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
NAMES = st.text("abXY z_-=%/é'中0", min_size=1, max_size=6).filter(lambda name: name.strip() == name)
MOMENTS = st.datetimes(dt.datetime.fromisoformat("1900-01-01"), dt.datetime.fromisoformat("2200-01-01"))


def integers(bits):
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


PLAIN = [
    (pa.bool_(), st.booleans()),
    *((kind, integers(kind.bit_width)) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal128(12, 3), st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3))),
    (pa.decimal128(38, 0), st.integers(-(10**37), 10**37).map(Decimal)),
    (pa.string(), TEXTS),
    (pa.binary(), st.binary(max_size=8)),
    (pa.date32(), st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1))),
    (pa.timestamp("us", "UTC"), MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
    (pa.timestamp("us"), MOMENTS),
]
"""Types that Spark's Parquet writer and both formats support, and their values."""


def optional(field, values):
    return st.none() | values if field.nullable else values


@st.composite
def kinds(draw, depth=2):
    """Draw a type, and the strategy of its values."""
    what = draw(st.sampled_from(["plain", "plain", "list", "map", "struct"] if depth else ["plain"]))
    if what == "plain":
        return draw(st.sampled_from(PLAIN))
    kind, values = draw(kinds(depth - 1))
    inner = pa.field("element", kind, draw(st.booleans()))
    if what == "list":
        return pa.list_(inner), st.lists(optional(inner, values), max_size=3)
    if what == "map":
        value = pa.field("value", kind, inner.nullable)
        keys = st.lists(TEXTS, max_size=3, unique=True)
        pairs = keys.flatmap(lambda names: st.tuples(*[st.tuples(st.just(n), optional(value, values)) for n in names]))
        return pa.map_(pa.string(), value), pairs.map(list)
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower))
    parts = {name: draw(kinds(depth - 1)) for name in names}
    fields = [pa.field(name, part[0], draw(st.booleans())) for name, part in parts.items()]
    each = {field.name: optional(field, parts[field.name][1]) for field in fields}
    return pa.struct(fields), st.fixed_dictionaries(each)


@st.composite
def fields(draw, taken=()):
    """Draw columns, and the strategy of the values of each."""
    names = draw(st.lists(NAMES.filter(lambda n: n.lower() not in taken), min_size=1, max_size=3, unique_by=str.lower))
    found = {}
    for name in names:
        kind, values = draw(kinds())
        field = pa.field(name, kind, draw(st.booleans()))
        found[name] = field, optional(field, values)
    return found


def takes(kind, found):
    """Whether a format supports columns; Delta has no times without a zone inside maps (see test_lake_columns)."""
    return kind != "delta" or not any(has_local_times_in_map(field.type) for field, _ in found.values())


def drawn(data, columns, by):
    """Draw a batch of random rows."""
    schema = pa.schema([field for field, _ in columns.values()])
    row = st.fixed_dictionaries({name: values for name, (_, values) in columns.items()})
    rows = data.draw(st.lists(row, max_size=4))
    if by is not None:
        rows = [row for row in rows if row[by] != ""]
    return rows, pa.RecordBatch.from_pylist(rows, schema)


def comparable(value: Any) -> Any:
    """Return a value without the difference between the lists and dictionaries that readers use for maps."""
    if isinstance(value, dict):
        return sorted((key, comparable(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "")
    return value


def without_empty(rows):
    """Return the rows with null for empty lists and maps, because pyiceberg 0.12 confuses the two around structs."""
    if isinstance(rows, dict):
        return {key: without_empty(one) for key, one in rows.items()}
    return ([without_empty(one) for one in rows] or None) if isinstance(rows, list | tuple) else rows


def swapped(name):
    """Return a name in another case, which Spark treats as equal."""
    other = name.swapcase()
    return other if other.lower() == name.lower() else name


def counted(rows, names):
    """Return the counts of rows under names in lower case; columns that a row lacks are null."""
    lower = [{name.lower(): value for name, value in row.items()} for row in rows]
    return Counter(repr([comparable(row.get(name.lower())) for name in names]) for row in lower)


def by_library(options):
    if options["tableFormat"] == "iceberg":
        return iceberg_table(options).scan().to_arrow().to_pylist()
    import deltalake

    return deltalake.DeltaTable(options["path"]).to_pyarrow_table().to_pylist()


def by_duckdb(table):
    duckdb = pytest.importorskip("duckdb")
    files = [str(Path(table.options.path, path)) for path in table.paths()]
    if not files:
        return []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.read_parquet(files, union_by_name=True).to_arrow_table().to_pylist()


def story(kind, data):
    """Write, evolve, overwrite and compact a random table, and compare it with the rows it has to have."""
    with tempfile.TemporaryDirectory() as folder:
        options = options_of(kind, Path(folder))
        columns = data.draw(fields().filter(lambda found: takes(kind, found)))
        by = None
        if data.draw(st.booleans()):
            by = data.draw(NAMES.filter(lambda name: name.lower() not in {one.lower() for one in columns}))
            part, values = data.draw(st.sampled_from([PLAIN[0], PLAIN[3], PLAIN[4], PLAIN[9], PLAIN[11]]))
            field = pa.field(by, part, data.draw(st.booleans()))
            columns[by] = field, optional(field, values)
        more = {} if by is None else {"partitionBy": by}
        if by is not None and any(sign in by for sign in ",()"):
            return
        model: list[dict[str, Any]] = []
        for number in range(data.draw(st.integers(1, 4))):
            act = data.draw(st.sampled_from(["append", "evolve", "case", "overwrite", "compact"]))
            if act == "evolve" and number:
                more_fields = fields({name.lower() for name in columns})
                columns |= data.draw(more_fields.filter(lambda found: takes(kind, found)))
            rows, batch = drawn(data, columns, by if kind == "delta" else None)
            if act == "case":
                batch = batch.rename_columns([swapped(name) for name in batch.schema.names])
            table = prepared(options, batch.schema, mergeSchema="true", **more)
            assert table.commit(table.written(batch), Batch("q", number), act == "overwrite")
            model = [*([] if act == "overwrite" else model), *rows]
            if act == "compact":
                table.compact(1 << 20)
        table: Table = table_of(options)
        names = list(columns)
        assert counted(table.read(), names) == counted(model, names)
        alike = without_empty if kind == "iceberg" else list
        assert counted(alike(by_library(options)) or [], names) == counted(alike(model) or [], names)
        if kind == "delta" and by is None:
            assert counted(by_duckdb(table), names) == counted(model, names)


# Shrinking an example takes minutes, and the examples are short.
@settings(costly(0.25), phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck))
@given(st.data())
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_come_back_equal(kind, data):
    story(kind, data)
