"""Columns of lake tables: the table decides, columns may be null, and names are compared like in Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from lake_tables import options_of, prepared, table_of

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.tables import Batch

A = pa.schema([("a", pa.int64())])
AB = pa.schema([("a", pa.int64()), ("b", pa.int32())])


def appended(options, schema, *rows, **more):
    """Append rows in a commit of their own and return the table."""
    table = prepared(options, schema, **more)
    assert table.commit(table.written(pa.RecordBatch.from_pylist(list(rows), schema)), Batch(None, 0), False)
    return table


def by_a(table, schema=None):
    return sorted(table.read(schema), key=lambda row: row["a"])


def test_a_column_that_the_table_lacks_is_named(options):
    appended(options, A, {"a": 1})
    with pytest.raises(ConfigError, match=r"table .* has no column b; it has a\. .* set mergeSchema=true"):
        table_of(options).prepare(AB)
    with pytest.raises(ConfigError, match=r"column a is string in the rows and int64 in .* table .*; cast it"):
        table_of(options).prepare(pa.schema([("a", pa.string())]))


def test_the_whole_table_decides_and_not_the_last_files(options):
    appended(options, A, {"a": 1})
    appended(options, AB, {"a": 2, "b": 2}, mergeSchema="true")
    appended(options, A, {"a": 3})
    appended(options, AB, {"a": 4, "b": 4})
    for merge_schema in ("true", "false"):
        with pytest.raises(ConfigError, match="column b is string in the rows and int32 in "):
            table_of(options, mergeSchema=merge_schema).prepare(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    table = table_of(options)
    wanted = [{"a": 1, "b": None}, {"a": 2, "b": 2}, {"a": 3, "b": None}, {"a": 4, "b": 4}]
    assert by_a(table) == wanted
    assert table.compact(1 << 20) == 4
    assert by_a(table) == wanted
    assert table.schema().field("b").type == pa.int32()


def test_a_literal_column_does_not_become_not_null(options):
    """Spark declares `lit('v2')` as never null."""
    literal = pa.field("b", pa.struct([pa.field("c", pa.list_(pa.field("element", pa.string(), False)), False)]), False)
    appended(options, A, {"a": 1})
    table = appended(options, A.append(literal), {"a": 2, "b": {"c": ["v2"]}}, mergeSchema="true")
    assert by_a(table) == [{"a": 1, "b": None}, {"a": 2, "b": {"c": ["v2"]}}]
    kind = table.schema().field("b").type
    assert (table.schema().field("b").nullable, kind.field(0).nullable) == (True, True)
    assert kind.field(0).type.value_field.nullable
    # Rows without the column, with null, and with a nested null are accepted.
    appended(options, A, {"a": 3})
    plain = pa.schema([("a", pa.int64()), ("b", pa.struct([("c", pa.list_(pa.string()))]))])
    table = appended(options, plain, {"a": 4, "b": None}, {"a": 5, "b": {"c": None}}, {"a": 6, "b": {"c": [None]}})
    assert [row["b"] for row in by_a(table)][2:] == [None, None, {"c": None}, {"c": [None]}]


def test_a_first_write_of_literals_leaves_the_column_nullable(options):
    appended(options, pa.schema([("a", pa.int64()), pa.field("v", pa.string(), False)]), {"a": 1, "v": "v1"})
    table = appended(options, A, {"a": 2})
    assert by_a(table) == [{"a": 1, "v": "v1"}, {"a": 2, "v": None}]


def test_names_are_compared_without_case(options):
    small = pa.schema([("a", pa.int64()), ("name", pa.string())])
    large = pa.schema([("NAME", pa.string()), ("A", pa.int64())])
    appended(options, small, {"a": 1, "name": "tea"})
    table = appended(options, large, {"A": 2, "NAME": "milk"}, mergeSchema="true")
    assert table.schema().names == ["a", "name"]
    assert by_a(table) == [{"a": 1, "name": "tea"}, {"a": 2, "name": "milk"}]
    assert sorted(row["NAME"] for row in table.read(large)) == ["milk", "tea"]
    with pytest.raises(ConfigError, match=r"the rows: columns a and A are the same name; .*spark\.sql\.caseSensitive"):
        table_of(options).prepare(pa.schema([("a", pa.int64()), ("A", pa.int64())]))


def test_partition_columns_are_compared_without_case(options):
    schema = pa.schema([("a", pa.int64()), ("Day", pa.string())])
    other = pa.schema([("A", pa.int64()), ("dAY", pa.string())])
    appended(options, schema, {"a": 1, "Day": "x"}, partitionBy="day")
    table = appended(options, other, {"A": 2, "dAY": "y"}, partitionBy="DAY")
    assert by_a(table) == [{"a": 1, "Day": "x"}, {"a": 2, "Day": "y"}]


def test_names_are_compared_with_case_when_spark_does(tmp_path):
    options = options_of("iceberg", tmp_path)
    appended(options, A, {"a": 1})
    with pytest.raises(ConfigError, match="has no column A; it has a"):
        table_of(options, caseSensitive="true").prepare(pa.schema([("A", pa.int64())]))


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.month_day_nano_interval()])
def test_a_type_that_the_format_lacks_is_named(options, kind):
    with pytest.raises(ConfigError, match=f"b.* {kind.__str__()[:8]}.*; cast"):
        table_of(options).prepare(pa.schema([("a", pa.int64()), ("b", kind)]))


def test_two_writers_that_add_the_same_column_agree(options):
    appended(options, A, {"a": 1})
    one, two = table_of(options, mergeSchema="true"), table_of(options, mergeSchema="true")
    one.prepare(AB)
    two.prepare(AB)
    with pytest.raises(ConfigError, match="column b is string"):
        table_of(options, mergeSchema="true").prepare(pa.schema([("a", pa.int64()), ("b", pa.string())]))


def test_local_times_inside_a_map_of_a_delta_table_are_named(tmp_path):
    kind = pa.map_(pa.string(), pa.struct([("at", pa.list_(pa.timestamp("us")))]))
    options = options_of("delta", tmp_path)
    with pytest.raises(ConfigError, match=r"column b is map<.*TIMESTAMP_NTZ inside a map; cast the times to TIMESTAMP"):
        table_of(options).prepare(pa.schema([("a", pa.int64()), ("b", kind)]))
    assert appended(options, A, {"a": 1}).read() == [{"a": 1}]
