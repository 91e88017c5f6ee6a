"""Lake tables of other writers, of unsupported kinds: refused by name, never misread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from lake_tables import iceberg_table, options_of, table_of

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.formats import compact
from tianzhou.spark.lake.tables import Batch, LakeError

SCHEMA = pa.schema([("id", pa.int64()), ("item", pa.string())])
ROWS = pa.RecordBatch.from_pylist([{"id": 1, "item": "tea"}, {"id": 2, "item": None}], SCHEMA)


@pytest.fixture
def delta(tmp_path):
    """Return a function that creates a Delta table with foreign features and opens it with ours."""
    deltalake = pytest.importorskip("deltalake")

    def make(schema=SCHEMA, configuration=None, constraint=None):
        path = str(tmp_path / "table")
        table = deltalake.DeltaTable.create(path, schema=schema, configuration=configuration or {})
        if constraint is not None:
            table.alter.add_constraint(constraint)
        return table_of({"path": path})

    return make


@pytest.fixture
def iceberg(tmp_path):
    options = options_of("iceberg", tmp_path)
    return options, table_of(options)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            {"configuration": {"delta.columnMapping.mode": "name"}},
            r"has column mapping \(delta.columnMapping.mode=name\)",
        ),
        ({"configuration": {"delta.enableDeletionVectors": "true"}}, "has deletion vectors"),
        ({"constraint": {"positive": "id > 0"}}, r"has the constraint positive \(id > 0\)"),
    ],
)
def test_a_delta_table_that_files_alone_do_not_make_is_not_written(delta, made, text):
    table = delta(**made)
    with pytest.raises(LakeError, match=text):
        table.prepare(SCHEMA)
    with pytest.raises(LakeError, match=text):
        table.commit([], Batch("query", 0), True)
    with pytest.raises(LakeError, match=text):
        compact(table.options.path)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"delta.generationExpression": "id + 1"}, r"has a generated column \(sum\)"),
        ({"delta.invariants": '{"expression":{"expression":"sum > 3"}}'}, r"a column with an invariant \(sum\)"),
        ({"delta.identity.start": 1}, r"has an identity column \(sum\)"),
    ],
)
def test_a_delta_table_that_computes_columns_is_not_written(delta, metadata, text):
    deltalake = pytest.importorskip("deltalake")
    long = deltalake.schema.PrimitiveType("long")
    fields = [deltalake.Field("id", long), deltalake.Field("sum", long, metadata=metadata)]
    with pytest.raises(LakeError, match=text):
        delta(deltalake.Schema(fields)).prepare(SCHEMA)


def test_a_delta_table_whose_columns_have_other_names_in_its_files_is_not_read(delta):
    with pytest.raises(LakeError, match=r"table .* has column mapping .*another tool"):
        delta(configuration={"delta.columnMapping.mode": "name"}).scan()


@pytest.mark.parametrize(
    ("protocol", "act", "text"),
    [
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]},
            lambda table: table.scan(),
            "table .* cannot be opened: .*'later' is not supported",
        ),
        (
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]},
            lambda table: table.commit([], Batch("query", 0), True),
            "table .*: batch 0 is not committed: .*RowTracking",
        ),
    ],
)
def test_a_delta_table_of_a_later_kind_is_refused_by_its_feature(delta, protocol, act, text):
    table = delta()
    [log] = Path(table.options.path, "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text(
        "".join(json.dumps({**line, **({"protocol": protocol} if "protocol" in line else {})}) + "\n" for line in lines)
    )
    with pytest.raises(LakeError, match=text):
        act(table)


def test_a_delta_table_with_deletion_vectors_is_not_read(delta):
    with pytest.raises(LakeError, match="has deletion vectors"):
        delta(configuration={"delta.enableDeletionVectors": "true"}).scan()


def test_nulls_are_refused_where_delta_lets_none_be(delta):
    table = delta(pa.schema([pa.field("id", pa.int64(), False), pa.field("item", pa.string(), False)]))
    table.prepare(SCHEMA)
    with pytest.raises(LakeError, match="column item: a row has null, and the column is NOT NULL in delta table"):
        table.written(ROWS)
    with pytest.raises(ConfigError, match=r"the rows lack column item, which is NOT NULL in delta table .*; add it"):
        table.prepare(pa.schema([("id", pa.int64())]))
    assert table.scan() == []


def test_nulls_are_refused_where_iceberg_lets_none_be(iceberg):
    from pyiceberg.catalog import load_catalog

    options, table = iceberg
    catalog = load_catalog("tianzhou", uri=options["catalogUri"], warehouse=options["warehouse"])
    catalog.create_namespace("lake")
    catalog.create_table("lake.orders", pa.schema([("id", pa.int64()), pa.field("item", pa.string(), False)]))
    table.prepare(SCHEMA)
    with pytest.raises(LakeError, match="column item: a row has null, and the column is NOT NULL in iceberg table"):
        table.written(ROWS)


@pytest.mark.parametrize("again", [False, True])
def test_an_iceberg_table_with_renamed_columns_is_read_by_the_columns_numbers(iceberg, again):
    options, table = iceberg
    table.prepare(SCHEMA)
    table.commit(table.written(ROWS), Batch("query", 0), False)
    with iceberg_table(options).update_schema() as update:
        update.rename_column("item", "goods")
    wanted = [{"id": 1, "goods": "tea"}, {"id": 2, "goods": None}]
    if again:
        with iceberg_table(options).update_schema() as update:
            update.delete_column("goods")
        with iceberg_table(options).update_schema() as update:
            update.add_column("item", iceberg_table(options).schemas()[0].find_type("item"))
        wanted = [{"id": 1, "item": None}, {"id": 2, "item": None}]
    assert table.read() == wanted
    for number in (1, 2):
        table.prepare(pa.schema([("id", pa.int64())]))
        assert table.commit(table.written(ROWS.select(["id"])), Batch("query", number), False)
    assert table.compact(1 << 20) == 3
    rows = table.read()
    assert len(rows) == 6
    assert all(one in rows for one in wanted)


def test_an_iceberg_table_with_deleted_rows_is_read_without_them(iceberg):
    options, table = iceberg
    table.prepare(SCHEMA)
    for number in range(2):
        table.commit(table.written(ROWS), Batch("query", number), False)
    iceberg_table(options).delete("id = 1")
    assert [row["id"] for row in table.read()] == [2, 2]
    assert compact(**options) == 2
    assert [row["id"] for row in table.read()] == [2, 2]
